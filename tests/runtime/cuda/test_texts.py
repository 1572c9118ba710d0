"""Generated text that is kept: the same text without a generator, and never a damaged one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from einnet.errors import BackendError
from einnet.runtime.cuda import lower as lowering
from einnet.runtime.cuda import text_cache
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling.precompile import plan_of
from tests.instantiate.cuda_cases import case


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    return tmp_path


def without_generator(patch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("tvm") or m == "einnet.instantiate.codegen.cuda.emit"]:
        patch.delitem(sys.modules, name)
    patch.setitem(sys.modules, "tvm", None)


@pytest.mark.parametrize("name", ["softmax", "two reductions"])
def test_what_was_generated_is_found_without_a_generator(name, monkeypatch):
    made = lower(plan_of(case(name)))
    with monkeypatch.context() as patch:
        without_generator(patch)
        assert lower(plan_of(case(name))) == made
        with pytest.raises(lowering.Refusal, match="pip install apache-tvm"):
            lower(plan_of(case("transpose")))


def test_damaged_files_are_made_again(folder, monkeypatch):
    made = lower(plan_of(case("softmax")))
    (file,) = folder.rglob("*.json")
    for text in ("", "{", '{"text": "x", "kernels": [{}], "stages": []}', '{"text": "x", "kernels": [{"name": "n", "grid": [1]}]}'):
        file.write_text(text)
        assert lower(plan_of(case("softmax"))) == made


def test_another_generator_makes_other_text(monkeypatch, folder):
    lower(plan_of(case("softmax")))
    monkeypatch.setattr(text_cache, "generator_version", lambda: "another")
    lower(plan_of(case("softmax")))
    assert len(list(folder.rglob("*.json"))) == 2


def test_a_folder_that_cannot_be_written_is_no_error(folder, monkeypatch):
    monkeypatch.setenv("EINNET_CACHE", "/dev/null/nowhere")
    assert lower(plan_of(case("softmax"))).texts


def test_a_refusal_names_its_kernel(monkeypatch):
    from einnet.instantiate.codegen.cuda import emit as cuda

    monkeypatch.setattr(cuda, "LONGEST", 10)
    with pytest.raises(BackendError) as refused:
        lower(plan_of(case("softmax")))
    assert isinstance(refused.value, lowering.Refusal)
    assert [k.scope for k in refused.value.reasons] == [case("softmax").scope]
