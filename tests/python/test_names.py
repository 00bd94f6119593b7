"""Tests that each public name of torch.cuda exists in plinth with the same parameters, or has a reason not to."""

import importlib
import inspect
import pathlib
import pkgutil
import unittest

import support  # noqa: F401
import plinth

LIST = pathlib.Path(__file__).resolve().parents[1] / "docs" / "torch_cuda.txt"

NO_TENSORS = "plinth has no tensor type: fills and collectives take DLPack"
ABOVE = "a matter of operators, which are above plinth"
TUNABLE = "selects implementations of matrix products, which plinth does not contain"
GDS = "cuFile's own API takes plinth's memory"
HOOK = "they call a profiler's functions; a program calls its own around these calls"
OWNER = "a program releases what a graph uses when it has destroyed the graph"
NEW_DRIVER = "needs a driver of CUDA 13.1 or later"

# A name, or the first part of one, and why the Python package does not have it.
MISSING = {
    **dict.fromkeys([f"{kind}{what}" for kind in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int",
                                                 "Long", "Short") for what in ("Storage", "Tensor")], NO_TENSORS),
    "ComplexDoubleStorage": NO_TENSORS,
    "ComplexFloatStorage": NO_TENSORS,
    "DeferredCudaCallError": "seeds that are set before the initialization are stored, and cannot fail later",
    **dict.fromkeys([f"CUDAGraph.{name}" for name in ("capture_end_pre", "capture_end_post", "register_capture_start_hook",
                                                      "register_capture_end_hook", "register_post_instantiate_hook",
                                                      "register_replay_start_hook", "register_replay_end_hook")], HOOK),
    **dict.fromkeys(["CUDAGraph.register_destroy_callback", "CUDAGraph.retain_object"], OWNER),
    "CUDAGraph.get_graph_data": "CUDAGraph.debug_dump writes it",
    **dict.fromkeys([f"GreenContext.{name}" for name in ("locality_domain_id", "max_workqueue_concurrency",
                                                         "sm_partition")], NEW_DRIVER),
    **dict.fromkeys(["green_contexts.SMPartition", "green_contexts.get_num_locality_domains",
                     "green_contexts.is_localization_supported"], NEW_DRIVER),
    "amp": ABOVE,
    "cudaStatus": "PlinthError.status and PlinthError.driver_code",
    "cudart": "plinth does not load the runtime; _native.lib.plinth_driver_entry_point finds functions of the driver",
    "export_dot": HOOK,
    "export_graph_data": HOOK,
    "gds": GDS,
    "graph_annotations": HOOK,
    "graphs": "the module is plinth.graph, whose name is that of the context in it",
    "has_half": "a constant: every supported GPU has float16",
    "has_magma": "plinth has no linear algebra",
    "make_graphed_callables": "it graphs torch's autograd; capture a function with plinth.graph",
    "sparse": ABOVE,
    "streams": "the module is plinth.stream, whose name is that of the function in it",
    "tunable": TUNABLE,
}

# The names of torch's parameters, without self; a function without a line here has none or only `device`.
PARAMETERS = """
CUDAGraph keep_graph
CUDAGraph.capture_begin pool capture_error_mode
CUDAGraph.debug_dump debug_path
CUDAGraph.register_generator_state generator
CUDAPluggableAllocator path_to_so_file alloc_fn_name free_fn_name
Event enable_timing blocking interprocess external
Event.elapsed_time end_event
Event.from_ipc_handle device handle
Event.record stream
Event.wait stream
ExternalStream stream_ptr device
GreenContext.create num_sms device_id
GreenContext.split num_sms
MemPool allocator use_on_oom no_split
Stream device priority
Stream.record_event event
Stream.wait_event event
Stream.wait_stream stream
StreamContext stream
_compile_kernel kernel_source kernel_name compute_capability cuda_include_dirs nvcc_options
_sleep cycles
caching_allocator_alloc size device stream
caching_allocator_delete mem_ptr
caching_allocator_enable value
can_device_access_peer device peer_device
change_current_allocator allocator
check_error res
comm.broadcast tensor devices out
comm.broadcast_coalesced tensors devices buffer_size
comm.gather tensors dim destination out
comm.reduce_add inputs destination
comm.reduce_add_coalesced inputs destination buffer_size
comm.scatter tensor devices chunk_sizes dim streams out
device device
device_of obj
get_rng_state device
get_stream_from_external data_ptr device
graph cuda_graph pool stream capture_error_mode
is_bf16_supported including_emulation
jiterator._create_jit_fn code_string kwargs
jiterator._create_multi_output_jit_fn code_string num_outputs kwargs
manual_seed seed
manual_seed_all seed
memory._dump_snapshot filename augment_with_fx_traces
memory._record_memory_history enabled
memory._set_allocator_settings env
memory._snapshot device augment_with_fx_traces
memory_snapshot mempool_id
memory_summary device abbreviated
nccl.all_gather inputs outputs streams comms
nccl.all_reduce inputs outputs op streams comms
nccl.broadcast inputs root streams comms
nccl.init_rank num_ranks uid rank
nccl.is_available tensors
nccl.reduce inputs output root op streams comms
nccl.reduce_scatter inputs outputs op streams comms
nvtx.mark msg
nvtx.range msg args kwargs
nvtx.range_end range_id
nvtx.range_push msg
nvtx.range_start msg
set_device device
set_per_process_memory_fraction fraction device
set_rng_state new_state device
set_rng_state_all new_states
set_stream stream
set_sync_debug_mode debug_mode
stream stream
use_mem_pool pool device
"""


def names():
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_missing(name):
    return name in MISSING or name.partition(".")[0] in MISSING


def find(name):
    found = plinth
    for part in name.split("."):
        found = getattr(found, part)
    return found


@unittest.skipUnless(LIST.exists(), "the list of torch's names is not here: the tests run outside of the repository")
class Names(unittest.TestCase):
    def test_each_name_exists_or_has_a_reason(self):
        self.assertGreater(len(names()), 200)
        for name in names():
            if is_missing(name):
                continue
            with self.subTest(name=name):
                found = find(name)
                self.assertTrue(callable(found) or isinstance(found, property) or inspect.ismodule(found)
                                or name == "default_generators")

    def test_reasons_are_used_and_true(self):
        listed = {name for name in names()} | {name.partition(".")[0] for name in names()}
        for name in MISSING:
            with self.subTest(name=name):
                self.assertIn(name, listed)
                self.assertFalse(hasattr(plinth, name))

    def test_parameters(self):
        known = {line.split()[0]: line.split()[1:] for line in PARAMETERS.strip().splitlines()}
        self.assertLessEqual(set(known), set(names()))
        for name in names():
            if is_missing(name) or inspect.ismodule(find(name)) or isinstance(find(name), property):
                continue
            if name in ("default_generators", "AcceleratorError", "CudaError", "OutOfMemoryError"):
                continue
            with self.subTest(name=name):
                own = [parameter for parameter in inspect.signature(find(name)).parameters if parameter != "self"]
                expected = known.get(name, own[:1] if own[:1] == ["device"] else [])
                self.assertEqual(own[: len(expected)], expected)
                # What torch does not have is optional.
                for parameter in own[len(expected):]:
                    found = inspect.signature(find(name)).parameters[parameter]
                    self.assertTrue(found.kind == found.VAR_KEYWORD or found.default is not found.empty, parameter)

    def test_all_is_complete(self):
        public = {name for name, thing in vars(plinth).items() if not name.startswith("_")
                  and getattr(thing, "__module__", "plinth").startswith("plinth")
                  and not (inspect.ismodule(thing) and thing.__name__ not in {f"plinth.{name}" for name in plinth.__all__})}
        self.assertEqual(public, set(plinth.__all__))
        self.assertEqual(plinth.__all__, sorted(plinth.__all__))

    def test_public_things_have_docstrings(self):
        modules = [module for module in vars(plinth).values()
                   if inspect.ismodule(module) and module.__name__.startswith("plinth.")
                   and "._" not in module.__name__]
        self.assertGreater(len(modules), 10)
        for module in [plinth, *modules]:
            for name, thing in vars(module).items():
                if name.startswith("_") or getattr(thing, "__module__", "") != module.__name__:
                    continue
                if inspect.isclass(thing) or inspect.isfunction(thing):
                    with self.subTest(module=module.__name__, name=name):
                        self.assertTrue((thing.__doc__ or "").strip())
                    if inspect.isclass(thing):
                        for method, function in vars(thing).items():
                            if inspect.isfunction(function) and not method.startswith("_"):
                                with self.subTest(name=f"{name}.{method}"):
                                    self.assertTrue((function.__doc__ or "").strip())

    def test_public_functions_are_annotated(self):
        """The package is typed (py.typed): a strict type checker refuses calls of functions that are not."""
        found = [module.name for module in pkgutil.iter_modules(plinth.__path__) if not module.name.startswith("_")]
        for module in (importlib.import_module(f"plinth.{name}") for name in found):
            own = [thing for name, thing in vars(module).items()
                   if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__]
            methods = [method for thing in own if inspect.isclass(thing) for name, method in vars(thing).items()
                       if name in ("__init__", "__new__", "__call__") or not name.startswith("_")]
            for function in filter(inspect.isfunction, (inspect.unwrap(thing) for thing in own + methods)):
                if function.__module__ != module.__name__:
                    continue  # of a NamedTuple or a Protocol
                parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
                with self.subTest(module=module.__name__, function=function.__qualname__):
                    self.assertLessEqual({*parameters, "return"}, set(function.__annotations__))


if __name__ == "__main__":
    unittest.main()
