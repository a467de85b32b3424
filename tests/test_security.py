"""What SECURITY.md promises, as far as it is not tested where it is built."""

import ast
import dataclasses
import json
from pathlib import Path

import pytest

from rlvr.engine.models import LanguageModel, end_tokens, load_tokenizer
from rlvr.keys import ConfigError
from tests.engine.models import HARDWARE, MODEL

ROOT = Path(__file__).parents[1]
FORBIDDEN = {  # calls that run what they are given
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "yaml.load",
    "yaml.unsafe_load",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
SANDBOXED = "rlvr/verifiers/sandbox/jail/program.py"  # whose business that is


@pytest.mark.parametrize("path", sorted((ROOT / "rlvr").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_hands_text_to_a_shell_a_pickle_or_the_interpreter(path):
    if str(path.relative_to(ROOT)) == SANDBOXED:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name, given = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert name not in FORBIDDEN, f"line {node.lineno}: {name}"
            assert given.get("shell", "False") == "False", f"line {node.lineno}: a shell"
            assert given.get("allow_pickle", "False") == "False", f"line {node.lineno}: a pickle"
            if name == "torch.load":
                assert given.get("weights_only") == "True", f"line {node.lineno}: torch.load of any pickle"
            if "trust_remote_code" in given:
                assert "trust_remote_code" in given["trust_remote_code"], (
                    f"line {node.lineno}: code without being asked"
                )


def test_code_of_a_model_is_not_run_unless_the_key_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    ran = tmp_path / "ran"
    parts = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M", "AutoTokenizer": ["code.T", None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": parts}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": parts}))
    (tmp_path / "code.py").write_text(f"open({str(ran)!r}, 'w')\nclass C: pass\nclass M: pass\nclass T: pass\n")
    model = dataclasses.replace(MODEL, path=str(tmp_path))
    with pytest.raises(ConfigError, match=r"Python code of its own.*set model\.trust_remote_code=true"):
        load_tokenizer(model)
    with pytest.raises(ValueError, match="custom code"):
        end_tokens(str(tmp_path))
    with pytest.raises(ValueError, match="custom code"):
        LanguageModel(str(tmp_path), model, HARDWARE)
    assert not ran.exists()
    with pytest.raises((ConfigError, AttributeError)):  # it is no tokenizer, but it was run
        load_tokenizer(dataclasses.replace(model, trust_remote_code=True))
    assert ran.exists()
