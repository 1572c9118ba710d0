"""Models with a dimension that has a range: which inputs carry it, and what static models become."""

import numpy as np
import onnx
import pytest

from einnet.errors import ModelError
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import carried
from tests.graph.cases import reference
from tests.models import dynamic_batch, tiny, with_opaque

BATCH = Dimension("batch", 1, 4)


def test_a_named_dimension_is_found_where_inputs_have_it():
    found = carried(dynamic_batch(), "batch")
    assert found.axes == {"x": (0,)}
    assert found.shapes(BATCH, 3, {}) == {"x": (3, 8)}


def test_the_leading_dimension_of_a_static_model_can_be_named_batch():
    found = carried(tiny("transformer"), "batch")
    assert found.axes == {"embeddings": (0,)}
    assert found.shapes(BATCH, 4, {}) == {"embeddings": (4, 8, 16)}


def test_a_freed_model_gives_for_each_row_what_the_model_gives():
    model = tiny("transformer")
    freed = carried(model, "batch").model
    onnx.checker.check_model(freed)
    rows = np.random.default_rng(0).standard_normal((3, 8, 16)).astype(np.float32)
    together = reference(freed, {"embeddings": rows})
    apart = [reference(model, {"embeddings": rows[n : n + 1]}) for n in range(3)]
    for name, value in together.items():
        np.testing.assert_allclose(value, np.concatenate([one[name] for one in apart]), rtol=1e-4, atol=1e-5)


def test_a_model_without_the_dimension_is_refused_with_those_that_it_has():
    with pytest.raises(ModelError, match="no input has a dimension 'sequence'; its dimensions are batch"):
        carried(dynamic_batch(), "sequence")
    with pytest.raises(ModelError, match="its shapes are static; batch may name the leading dimension"):
        carried(with_opaque(), "sequence")


def test_another_unknown_dimension_wants_a_shape():
    model = dynamic_batch()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    found = carried(model, "batch")
    with pytest.raises(ModelError, match="dimension 'width' of input 'x' is unknown beside batch; give the input a shape"):
        found.shapes(BATCH, 2, {})
    assert found.shapes(BATCH, 2, {"x": (1, 8)}) == {"x": (2, 8)}
