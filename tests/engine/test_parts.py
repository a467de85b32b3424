"""Parts of tensors on disk, by hand; and files that were made to run code."""

import pickle

import pytest
import torch
from safetensors.torch import save_file

from rlvr.engine.parts import Part, PartsFile, PartsFolder
from rlvr.keys import ConfigError

WHOLE = torch.arange(24.0).view(4, 6)
SHAPES = {"a": (4, 6), "b": (3,)}


def write(folder, *cuts):
    """`a` in as many files as there are cuts, `b` in the last one."""
    for number, (start, stop) in enumerate(cuts):
        parts = [Part("a", (4, 6), start, WHOLE.flatten()[start:stop])]
        if number == len(cuts) - 1:
            parts.append(Part("b", (3,), 0, torch.ones(3)))
        name = f"m/weights-{number:05d}-of-{len(cuts):05d}.safetensors"
        PartsFile(name, tuple(p.copied() for p in parts), {"updates": "7"}).write(folder)
    return folder / "m"


@pytest.mark.parametrize("cuts", [[(0, 24)], [(0, 5), (5, 24)], [(9, 24), (0, 9)], [(0, 1), (1, 13), (13, 24)]])
@pytest.mark.parametrize("start, stop", [(0, 24), (0, 7), (4, 6), (11, 23)])
def test_any_part_is_read_from_any_parts(tmp_path, cuts, start, stop):
    with PartsFolder(write(tmp_path, *cuts), "weights") as stored:
        got = torch.full((stop - start,), -1.0)
        stored.fill([Part("a", (4, 6), start, got)])
        assert torch.equal(got, WHOLE.flatten()[start:stop])
        assert torch.equal(dict(stored.whole(torch.float64))["a"], WHOLE.double())
        assert stored.told["updates"] == "7"
        stored.check_names(SHAPES)


def test_a_hole_is_an_error(tmp_path):
    with PartsFolder(write(tmp_path, (0, 5), (6, 24)), "weights") as stored:
        stored.fill([Part("a", (4, 6), 6, torch.empty(18))])
        with pytest.raises(ConfigError, match="a is not whole: the file of a rank is missing"):
            stored.fill([Part("a", (4, 6), 0, torch.empty(24))])


@pytest.mark.parametrize("shapes", [{"a": (4, 6)}, SHAPES | {"c": (1,)}, SHAPES | {"a": (6, 4)}])
def test_another_model_is_refused(tmp_path, shapes):
    with PartsFolder(write(tmp_path, (0, 24)), "weights") as stored, pytest.raises(ConfigError, match="not the same"):
        stored.check_names(shapes)


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def pickled(path, bomb):
    path.write_bytes(pickle.dumps(bomb))


def torch_saved(path, bomb):
    torch.save({"a": bomb}, path)


def of_a_stranger(path, bomb):
    save_file({"a": torch.zeros(3)}, path)


@pytest.mark.parametrize("poison", [pickled, torch_saved, of_a_stranger])
def test_a_poisoned_file_is_refused_and_runs_nothing(tmp_path, poison):
    poison(tmp_path / "weights-00000-of-00001.safetensors", Bomb(tmp_path / "went off"))
    with pytest.raises(ConfigError, match="is damaged, or no file of a checkpoint"):
        PartsFolder(tmp_path, "weights")
    assert not (tmp_path / "went off").exists()
