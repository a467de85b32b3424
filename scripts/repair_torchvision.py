"""Remove torchvision and its kin from this environment if they do not fit its torch.

vLLM asks for them, text models do not need them, and beside a CPU build of torch the ones from PyPI fail at import,
which breaks every import of transformers.  Where torchvision imports, nothing is changed.
"""

import subprocess
import sys

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def main() -> None:
    trial = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True)
    if trial.returncode == 0 or "No module named 'torchvision'" in trial.stderr:
        return
    reason = trial.stderr.strip().splitlines()[-1]
    print(f"torchvision does not fit this torch ({reason}): removing {', '.join(COMPANIONS)}")
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *COMPANIONS], check=True)


if __name__ == "__main__":
    main()
