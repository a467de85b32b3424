"""Bring code benchmarks into rows that the verifier `code` reads.

    python scripts/code_benchmarks.py humaneval_plus HumanEvalPlus.jsonl.gz humaneval_plus.jsonl
    python scripts/code_benchmarks.py livecodebench test6.jsonl livecodebench.jsonl

HumanEval+ comes with inputs and a reference solution: the solution is run here, in a process of its own with a time
limit, to get the values that tests expect.  Problems whose values are not JSON (complex numbers, sets) are left out and
named.  LiveCodeBench comes with hidden tests in packed form, which are unpacked without running anything from them.
"""

import argparse
import base64
import gzip
import json
import pickle
import subprocess
import sys
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

LIMIT = 120  # seconds for the reference solution on all inputs of a problem
RUN = """
import json, sys
told = json.load(sys.stdin)
space = {}
exec(told["program"], space)
out = [space[told["name"]](*args) for args in told["inputs"]]
print("\\n" + json.dumps(out, allow_nan=False))
"""
ASK_FUNCTION = "Complete this Python function. Answer with one Python code block that holds the whole function.\n\n"
ASK_PROGRAM = (
    "\n\nWrite a Python program that reads standard input and prints the result. Answer with one Python code block."
)
ASK_METHOD = "\n\nComplete this code. Answer with one Python code block that holds all of it.\n\n"


class OnlyText(pickle.Unpickler):
    """Unpickles text and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Raises UnpicklingError: tests are text."""
        raise pickle.UnpicklingError(f"the packed tests name {module}.{name}; they should be text")


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines, packed or not."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    yield from (json.loads(line) for line in text.split("\n") if line.strip())


def humaneval_plus(record: dict[str, Any]) -> dict[str, Any]:
    """A row of HumanEval+.

    Raises:
        ValueError: if the reference solution fails, or its values do not survive JSON.
    """
    inputs = [*record["base_input"], *record["plus_input"]]
    program = record["prompt"] + record["canonical_solution"]
    told = json.dumps({"program": program, "name": record["entry_point"], "inputs": inputs})
    command = [sys.executable, "-I", "-c", RUN]
    try:
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"the reference solution took more than {LIMIT} s") from error
    if done.returncode:
        raise ValueError((done.stderr.strip() or "no output").splitlines()[-1])
    values = json.loads(done.stdout.strip().rpartition("\n")[2])
    tests = [{"args": args, "returns": value} for args, value in zip(inputs, values, strict=True)]
    question = f"{ASK_FUNCTION}```python\n{record['prompt'].rstrip()}\n```"
    answer = {"function": record["entry_point"], "tests": tests}
    return {"id": record["task_id"].replace("/", "-"), "question": question, "answer": answer}


def livecodebench(record: dict[str, Any]) -> dict[str, Any]:
    """A row of LiveCodeBench, with public and hidden tests.

    Raises:
        ValueError: if the tests cannot be read.
    """
    tests = json.loads(record["public_test_cases"]) + hidden(record["private_test_cases"])
    starter = record.get("starter_code") or ""
    name = json.loads(record.get("metadata") or "{}").get("func_name")
    question = record["question_content"] + (f"{ASK_METHOD}```python\n{starter}\n```" if starter else ASK_PROGRAM)
    answer = {"tests": tests} | ({"function": name} if name else {})
    return {"id": record["question_id"].replace("/", "-"), "question": question, "answer": answer}


def hidden(packed: str) -> list[dict[str, Any]]:
    """Hidden tests: JSON, or JSON text that was pickled, compressed and encoded."""
    try:
        return json.loads(packed)
    except ValueError:
        pass
    try:
        return json.loads(OnlyText(BytesIO(zlib.decompress(base64.b64decode(packed)))).load())
    except (ValueError, TypeError, zlib.error, pickle.UnpicklingError) as error:
        raise ValueError(f"hidden tests: {error}") from error


READERS = {"humaneval_plus": humaneval_plus, "livecodebench": livecodebench}


def main() -> None:
    """Convert a file; what is left out is named on stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=READERS)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    kept = 0
    with given.target.open("w", encoding="utf-8") as file:
        for record in records(given.source):
            try:
                file.write(json.dumps(READERS[given.benchmark](record)) + "\n")
                kept += 1
            except ValueError as error:
                print(f"left out: {record.get('task_id') or record.get('question_id')}: {error}", file=sys.stderr)
    print(f"{kept} problems in {given.target}")


if __name__ == "__main__":
    main()
