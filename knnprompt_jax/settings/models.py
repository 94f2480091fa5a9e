"""The dtype and devices of a language model."""

from knnprompt_jax import errors, options, shipped

DTYPES = ("float32", "bfloat16")  # Of weights and activations: the reference, and for accelerators.
MODEL_HELP = f"{', '.join(shipped.SHIPPED)}, a Hub name (gpt2-xl, owner/name@revision, owner/name:file.gguf), a folder or a .gguf file."


class MeshOptions(options.Options):
    """The layout of a job's devices."""

    data: int = options.option(0, "Devices that rows of prompts are split over; 0: all devices / mesh.model.", least=0)
    model: int = options.option(
        1, "Devices that each copy of the weights is split over; 0: the fewest with enough memory.", least=0
    )


class DistributedOptions(options.Options):
    """The processes of a run on several hosts."""

    auto: bool = options.option(False, "Get the processes from Slurm, Open MPI or the TPU environment.")
    address: str = options.option("", "host:port of process 0, if distributed.auto is off.")
    num_processes: int = options.option(0, "Number of processes; needs address.", least=0)
    process_id: int = options.option(0, "Index of this process, from 0; needs address.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_given = self.address or self.num_processes or self.process_id
        if is_given and not self.auto and (":" not in self.address or self.process_id >= self.num_processes):
            raise errors.UserError(
                f"--distributed.address={self.address} --distributed.num_processes={self.num_processes} "
                f"--distributed.process_id={self.process_id}: give the address of process 0 as host:port, and a "
                "process_id from 0 to num_processes - 1"
            )


class ModelOptions(options.Options):
    """The dtype and devices of a language model. A dtype that is not given is float32, or a saved classifier's."""

    dtype: str | None = options.option(
        None,
        "float32 (default): the reference; bfloat16: for accelerators.",
        choices=DTYPES,
    )
    batch: int = options.option(0, "Packed tokens per step in each data shard; 0: chosen for the device.", least=0)
    mesh: MeshOptions = options.group(MeshOptions)
