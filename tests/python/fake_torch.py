"""What the package uses of torch, for tensors of a device that is not there."""

import types


class Device:
    def __init__(self, kind, index=None):
        self.kind, self.index = kind, index

    def __eq__(self, other):
        return (self.kind, self.index) == (other.kind, other.index)

    __hash__ = None

    def __str__(self):
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


class DType:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class Tensor:
    def __init__(self, shape, address, dtype=None, stride=None, device=None, requires_grad=False):
        self.shape, self._address = tuple(shape), address
        self.dtype = dtype or module.float32
        self._stride = stride or tuple([*shape[1:], 1])
        self.device = device or Device("cuda", 0)
        self.requires_grad, self.layout = requires_grad, module.strided

    def data_ptr(self):
        return self._address

    def stride(self):
        return self._stride

    def is_neg(self):
        return False


module = types.ModuleType("torch")
module.Tensor, module.device = Tensor, Device
for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"):
    setattr(module, name, DType(name))
module.strided = "strided"
module.is_grad_enabled = lambda: True
module._C = types.SimpleNamespace()
module.written = []  # of which PyTorch is told that they changed
module.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=module.written.append))
module.nn = types.SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))


class NoKeys:
    """Of a thread's dispatch."""

    def remove(self, key):
        return self

    def raw_repr(self):
        return 0


module._C.DispatchKey = types.SimpleNamespace(BackendSelect=1, ADInplaceOrView=2)
module._C._dispatch_tls_local_include_set = NoKeys
module.made = []  # by empty_strided(), in order
module.stream, module.capturing = 50, False


def empty_strided(shape, stride, dtype, device):
    tensor = Tensor(shape, 0x100000 + 0x1000 * len(module.made), dtype, stride, device)
    module.made.append(tensor)
    return tensor


module.empty_strided = empty_strided
module.cuda = types.SimpleNamespace(
    current_stream=lambda index: types.SimpleNamespace(cuda_stream=module.stream + 1000 * index),
    is_current_stream_capturing=lambda: module.capturing,
)


class TensorGuards:
    """Are tensors of the form of those that it was made of?"""

    def __init__(self, *tensors, dynamic_dims_sizes, dynamic_dims_strides):
        self._forms = [self._form(tensor) for tensor in tensors]
        assert [[list(t.shape), list(t.stride())] for t in tensors] == [
            list(form) for form in zip(dynamic_dims_sizes, dynamic_dims_strides, strict=True)
        ]

    @staticmethod
    def _form(tensor):
        if not isinstance(tensor, Tensor):
            return None
        return (tensor.shape, tensor.stride(), tensor.dtype, str(tensor.device), tensor.requires_grad)

    def check(self, *tensors):
        return [self._form(tensor) for tensor in tensors] == self._forms


guards = types.SimpleNamespace(
    guards=types.SimpleNamespace(
        TensorGuards=TensorGuards,
        _empty_strided_cuda=lambda shape, stride, dtype: empty_strided(shape, stride, dtype, Device("cuda", 0)),
    )
)
