"""The table of contents: one line per algorithm."""

from rlvr.algorithms.armor import ARMOR, ARMORWithQAE
from rlvr.algorithms.astar_po import AStarPO
from rlvr.algorithms.base import Algorithm
from rlvr.algorithms.cispo import CISPO
from rlvr.algorithms.dapo import DAPO
from rlvr.algorithms.grpo import GRPO
from rlvr.algorithms.gspo import GSPO
from rlvr.algorithms.ppo import PPO
from rlvr.algorithms.prorl import ProRL
from rlvr.algorithms.qae import QAE
from rlvr.algorithms.rebel import REBEL
from rlvr.algorithms.reinforce_pp import ReinforcePP
from rlvr.algorithms.rloo import RLOO

ALGORITHMS: dict[str, type[Algorithm]] = {
    "armor": ARMOR,
    "armor_qae": ARMORWithQAE,
    "astar_po": AStarPO,
    "cispo": CISPO,
    "dapo": DAPO,
    "grpo": GRPO,
    "gspo": GSPO,
    "ppo": PPO,
    "prorl": ProRL,
    "qae": QAE,
    "rebel": REBEL,
    "reinforce_pp": ReinforcePP,
    "rloo": RLOO,
}
