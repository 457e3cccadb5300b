"""Which RPCs of the contracts are really served, asked of the servicers themselves."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

import tdp
from foundation.errors import UnimplementedError
from tests.unit.docs.documents import ROOT


def _generated(suffix: str) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(tdp.__path__, "tdp."):
        if found.name.endswith(suffix):
            yield import_module(found.name)


def services() -> dict[str, ServiceDescriptor]:
    """Every service of the contracts, by its full name."""
    found: dict[str, ServiceDescriptor] = {}
    for module in _generated("_pb2"):
        file: FileDescriptor = module.DESCRIPTOR
        for service in file.services_by_name.values():
            found[service.full_name] = service
    return found


def servicers() -> dict[str, type]:
    """The class behind each service that one of our processes serves."""
    for path in sorted(ROOT.glob("*/adapters/inbound/grpc_*.py")):
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found: dict[str, type] = {}
    for module in _generated("_pb2_grpc"):
        package = module.__name__.rpartition(".")[0]
        for name, generated in inspect.getmembers(module, inspect.isclass):
            service = name.removesuffix("Servicer")
            ours = [one for one in generated.__subclasses__() if _is_ours(one)]
            if name.endswith("Servicer") and ours:
                found[f"{package}.{service}"] = ours[0]
    return found


def _is_ours(servicer: type) -> bool:
    return not servicer.__module__.startswith(("tdp.", "tests."))


async def is_offered(servicer: type, method: MethodDescriptor) -> bool:
    """Whether the class has the RPC for itself, and does not refuse it whatever is asked.

    It is called on an object without parts: what is served fails on the first part it needs.
    """
    own = next(one for one in servicer.__mro__ if method.name in vars(one))
    if own.__module__.startswith("tdp."):
        return False
    request = GetMessageClass(method.input_type)()
    called = getattr(servicer, method.name)(object.__new__(servicer), request, None)
    try:
        if inspect.isasyncgen(called):
            await anext(called)
        else:
            await called
    except UnimplementedError:
        return False
    except Exception:  # noqa: BLE001 - whatever else it is: the RPC began its work
        return True
    return True


async def not_offered() -> set[str]:
    """Every RPC that answers UNIMPLEMENTED, or whose service nobody serves."""
    serving = servicers()
    missing: set[str] = set()
    for name, service in services().items():
        for method in service.methods:
            if name not in serving or not await is_offered(serving[name], method):
                missing.add(f"{name}/{method.name}")
    return missing
