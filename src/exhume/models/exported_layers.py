"""The layers of an exported program: its operations, back as the modules that they came from.

``torch.export`` keeps operations and parameters, and no layers. Attacks read a network's structure
from its layers: which one sees the record, what follows it, where a rectifier is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_LINEAR, _CONVOLUTION = "aten.linear.default", "aten.conv2d.default"
_RECTIFIERS = ("aten.relu.default", "aten.relu_.default")


def restore_layers(program: GraphModule) -> None:
    """Replace linear maps, convolutions and the rectifiers behind layers by layers, in their order.

    Parameters keep their names and their order, and the program computes what it did. Other
    operations stay what they are, and so does a rectifier behind one of them.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> program = torch.export.export(net, (torch.rand(2, 3),)).module()
    >>> restore_layers(program)
    >>> [type(layer).__name__ for layer in program.children()][:3]
    ['Linear', 'ReLU', 'Linear']
    """
    order = [path for path, part in program.named_modules() if part._parameters]
    last, behind = "", None
    for node in list(program.graph.nodes):
        found = _weighted(program, node)
        if found is None and behind is not None and node.args and node.args[0] is behind:
            found = _rectifier(program, node, last)
        if found is not None:
            path, layer = found
            behind = _called(program, node, path, layer)
            if path not in order:
                order.insert(order.index(last) + 1, path)
            last = path
        elif (reads := _owner_of_any(node)) in order:
            last, behind = reads, node
    for node in list(program.graph.nodes):
        if node.op == "get_attr" and not node.users:
            program.graph.erase_node(node)
    program.recompile()
    _arrange(program, order)


def _called(program: GraphModule, node: Node, path: str, layer: nn.Module) -> Node:
    """Put the layer into the program, and return its call, which replaces an operation."""
    parent, _, name = path.rpartition(".")
    place: nn.Module = program
    for part in parent.split(".") if parent else []:
        if part not in place._modules:
            place.add_module(part, nn.Module())
        place = place.get_submodule(part)
    place._modules[name] = layer
    with program.graph.inserting_before(node):
        called = program.graph.call_module(path, (node.args[0],))
    node.replace_all_uses_with(called)
    program.graph.erase_node(node)
    return called


def _rectifier(program: GraphModule, node: Node, last: str) -> tuple[str, nn.Module] | None:
    """Return a ReLU by its module's name; a function or a second call has a name of its own."""
    if str(node.target) not in _RECTIFIERS:
        return None
    taken = {name for name, _ in program.named_modules()}
    path, kind = ([*node.meta.get("nn_module_stack", {}).values()] or [("", "")])[-1]
    if not str(kind).endswith(".ReLU") or path in taken:
        path = ".".join([*last.split(".")[:-1], f"{node.name}_of_{last.split('.')[-1]}"])
    return path, nn.ReLU()


def _weighted(program: GraphModule, node: Node) -> tuple[str, nn.Module] | None:
    """Return a linear layer or a convolution, with the program's own parameters."""
    if str(node.target) not in (_LINEAR, _CONVOLUTION):
        return None
    given = [one for one in node.args[1:3] if one is not None]
    path = _owner(given[0], "weight")
    parts = zip(given, _PARTS, strict=False)
    if not path or any(_owner(one, part) != path for one, part in parts):
        return None
    held = program.get_submodule(path)
    if len(held._parameters) != len(given) or held._modules or held._buffers:
        return None
    layer = _blank(node, held.get_parameter("weight").shape, bias=len(given) == 2)
    for name, parameter in held._parameters.items():
        layer.register_parameter(name, parameter)
    return path, layer


_PARTS = ("weight", "bias")


def _owner(read: Any, part: str) -> str:
    """Return the module whose ``part`` this operation alone reads, or nothing."""
    ending = f".{part}"
    if getattr(read, "op", "") != "get_attr" or len(read.users) != 1:
        return ""
    return str(read.target).removesuffix(ending) if str(read.target).endswith(ending) else ""


def _owner_of_any(node: Node) -> str:
    """Return the module whose parameters an operation reads, or nothing."""
    reads = [str(one.target) for one in node.all_input_nodes if one.op == "get_attr"]
    return reads[0].rpartition(".")[0] if reads else ""


def _blank(node: Node, shape: Any, *, bias: bool) -> nn.Module:
    """Return the layer of an operation, without values."""
    if str(node.target) == _LINEAR:
        return nn.Linear(shape[1], shape[0], bias=bias, device="meta")
    usual: list[Any] = [[1, 1], [0, 0], [1, 1], 1]
    stated: list[Any] = [*node.args[3:]]
    stride, padding, dilation, groups = stated + usual[len(stated) :]
    sizes = (tuple(shape[2:]), tuple(stride), tuple(padding), tuple(dilation))
    return nn.Conv2d(shape[1] * groups, shape[0], *sizes, groups, bias=bias, device="meta")


def _arrange(program: GraphModule, order: list[str]) -> None:
    """Have modules stand in the order of ``order``: what follows a layer is read from it."""
    for prefix, part in list(program.named_modules()):
        places = {name: _place(f"{prefix}.{name}".lstrip("."), order) for name in part._modules}
        for name in sorted(places, key=places.__getitem__):
            part._modules[name] = part._modules.pop(name)


def _place(path: str, order: list[str]) -> int:
    inside = (i for i, one in enumerate(order) if f"{one}.".startswith(f"{path}."))
    return min(inside, default=len(order))
