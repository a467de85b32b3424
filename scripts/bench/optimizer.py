"""AdamW's step, fused as the learner uses it, against torch's default: seconds, and the memory that comes on top.

    python scripts/bench/optimizer.py [parameters=135000000] [rounds=5] [device=cpu]

One flat fp32 tensor, as ZeRO steps it, and the same numbers in matrices of 576 x 1,536, as without ZeRO.
"""

from _measure import GIB, Peak, race, ratios, spread
from _runs import settings, table
from torch import Tensor, randn
from torch.optim import AdamW

MATRIX = (576, 1536)


def optimizer(tensors: list[Tensor], fused: bool | None) -> AdamW:
    """With gradients, and with moments from a first step."""
    weights = [tensor.clone() for tensor in tensors]
    for weight in weights:
        weight.grad = randn(weight.shape, device=weight.device) / 1000
    made = AdamW(weights, lr=1e-6, fused=fused)
    made.step()
    return made


def measure(tensors: list[Tensor], rounds: int, device: str) -> list[str]:
    """The rest of a row."""
    ways = {"default": optimizer(tensors, None), "fused": optimizer(tensors, True)}
    told = race({name: way.step for name, way in ways.items()}, rounds, device)
    peaks = {}
    for name, way in ways.items():
        with Peak(device) as peak:
            way.step()
        peaks[name] = f"{peak.bytes / GIB:.2f}"
    seconds = [spread(told["default"]), spread(told["fused"]), ratios(told["fused"], told["default"])]
    return [*seconds, peaks["default"], peaks["fused"]]


def main() -> None:
    """Measure and print."""
    given = settings(parameters="135000000", rounds="5", device="cpu")
    device, count = given["device"], int(given["parameters"])
    shapes = {"one tensor": [(count,)], "matrices": [MATRIX] * (count // (MATRIX[0] * MATRIX[1]))}
    rows = []
    for name, sizes in shapes.items():
        tensors = [randn(size, device=device) for size in sizes]
        rows.append([name, *measure(tensors, int(given["rounds"]), device)])
    columns = ["weights", "default, s", "fused, s", "fused over default", "default's own memory, GiB", "fused's, GiB"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
