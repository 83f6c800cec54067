"""EnvironmentSettings: setters of a program's environment, stored as options."""

import os
from datetime import timedelta
from typing import ClassVar, NoReturn, Self

from headrace.api.executors import active_executor, default_settings, known_parallelism
from headrace.api.settings import program_settings
from headrace.api.settings.checkpoint_config import CheckpointConfig, CheckpointingMode
from headrace.api.settings.execution_config import ExecutionConfig
from headrace.api.settings.program_settings import (
    ProgramSettings,
    check_buffer_timeout,
    configuration_values,
)
from headrace.api.settings.pyflink_refusals import GoneEnvironmentMethods
from headrace.api.settings.slot_sharing_group import SlotSharingGroup
from headrace.checkpoint.options import CHANGELOG, SAVEPOINT_DIRECTORY
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.core.resource_profile import ResourceProfile
from headrace.graph.pipeline_options import (
    BUFFER_TIMEOUT,
    BUFFER_TIMEOUT_ENABLED,
    CACHED_FILES,
    CHAIN_DIFFERENT_MAX_PARALLELISM,
    MAX_PARALLELISM,
    OPERATOR_CHAINING,
    PARALLELISM,
    PYTHON_ARCHIVES,
    PYTHON_EXECUTABLE,
    PYTHON_REQUIREMENTS,
    RUNTIME_MODE,
    RuntimeExecutionMode,
    cached_files,
)


class EnvironmentSettings(GoneEnvironmentMethods):
    """Base class of StreamExecutionEnvironment with its settings. Setters return the environment."""

    _default_local_parallelism: ClassVar[int | None] = None

    def __init__(self, configuration: object = None) -> None:
        given = {} if configuration is None else configuration_values(configuration)
        self._settings = ProgramSettings(given, command_line=default_settings())
        self._slot_resources: dict[str, ResourceProfile | None] = {}

    def get_config(self) -> ExecutionConfig:
        """Return a live view of the execution settings."""
        return ExecutionConfig(self._settings)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return a live view of the checkpoint settings."""
        return CheckpointConfig(self._settings)

    def configure(self, configuration: object) -> None:
        """Add the settings of a Configuration or a mapping."""
        self._settings.merge(configuration_values(configuration))

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that are made from now on and set none themselves."""
        self.get_config().set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the set parallelism.

        If none was set, return the executor's, for which `headrace run` starts its cluster.
        """
        known = self._parallelism_set() or known_parallelism(self._settings.to_settings())
        if known is not None:
            return known
        executor = active_executor()
        if executor is not None:
            return executor.default_parallelism()
        return self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, 1..32768: the upper bound for rescaling."""
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups; -1 if it is derived from the parallelism."""
        return self._settings.get(MAX_PARALLELISM)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Choose STREAMING, BATCH or AUTOMATIC."""
        if not isinstance(execution_mode, RuntimeExecutionMode):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"set_runtime_mode needs a RuntimeExecutionMode, such as RuntimeExecutionMode.STREAMING, "
                f"not {execution_mode!r}"
            )
        self._settings.set(RUNTIME_MODE, execution_mode.name)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Bound the wait before partly filled buffers are sent; 0: after every record, -1: only full ones."""
        timeout = timedelta(milliseconds=check_buffer_timeout(timeout_millis))
        self._settings.set(BUFFER_TIMEOUT, timeout)
        return self

    def get_buffer_timeout(self) -> int:
        """Return the buffer timeout in milliseconds; -1 if only full buffers are sent."""
        if not self._settings.get(BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._settings.get_millis(BUFFER_TIMEOUT)

    def disable_operator_chaining(self) -> Self:
        """Make every operator a vertex of its own."""
        self._settings.set(OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._settings.get(OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return self._settings.get(CHAIN_DIFFERENT_MAX_PARALLELISM)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Take a checkpoint every `interval` milliseconds, EXACTLY_ONCE unless `mode` says otherwise."""
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        config.set_checkpointing_mode(mode or CheckpointingMode.EXACTLY_ONCE)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval in milliseconds; -1 while checkpointing is off."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode; AT_LEAST_ONCE while checkpointing is off, as in Flink."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the mode; newer name of `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accept False; ConfigurationError for True, because the changelog state backend is not supported."""
        self._settings.set(CHANGELOG, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the setting; None if the program has not set it."""
        return self._settings.get(CHANGELOG) if self._settings.is_set(CHANGELOG) else None

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Declare a group with its resources, for operators that name it; see `slot_sharing_group` of streams.

        The last declaration of a name counts.
        """
        self._slot_resources[slot_sharing_group.name] = slot_sharing_group.profile
        return self

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file with the job; functions find it with `get_distributed_cache` of their runtime context.

        ValueError if another file has the name.
        """
        files = cached_files(self._settings.get(CACHED_FILES))
        if files.get(name, file_path) != file_path:
            raise ValueError(
                f"the cached file '{name}' is '{files[name]}' already, not '{file_path}'"
            )
        kept = self._settings.get(CACHED_FILES)
        said = f"name:{name},path:{file_path},executable:{str(executable).lower()}"
        if name not in files:
            self._settings.set(CACHED_FILES, f"{kept};{said}" if kept else said)

    def set_default_savepoint_directory(self, directory: str) -> Self:
        self._settings.set(SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._settings.get(SAVEPOINT_DIRECTORY) or None

    def get_default_local_parallelism(self) -> int:
        """Return the default parallelism: the machine's number of CPUs until it is set."""
        return EnvironmentSettings._default_local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism of environments whose executor does not know its number of slots yet."""
        EnvironmentSettings._default_local_parallelism = parallelism

    def add_python_file(self, file_path: str) -> None:
        """Put a module, a package folder or an archive on the import path here and on the workers."""
        program_settings.add_python_file(self._settings, file_path)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Run the job in a virtual environment with these packages, which each host makes once.

        If a cache folder is given, the packages are installed from it alone.
        """
        cache = "" if requirements_cache_dir is None else f"#{requirements_cache_dir}"
        self._settings.set(PYTHON_REQUIREMENTS, f"{requirements_file_path}{cache}")

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive with the job, to be unpacked once on each host.

        Functions find the unpacked folder with `get_distributed_cache` of their runtime context.
        """
        kept = self._settings.get(PYTHON_ARCHIVES)
        said = archive_path if target_dir is None else f"{archive_path}#{target_dir}"
        self._settings.set(PYTHON_ARCHIVES, f"{kept},{said}" if kept else said)

    def set_python_executable(self, python_exec: str) -> None:
        """Choose the interpreter of the job's TaskManagers, by its path on every host or in an archive of the job.

        The interpreter needs the driver's versions of Python, Headrace, PySpark and PyArrow.
        """
        self._settings.set(PYTHON_EXECUTABLE, python_exec)

    def add_jars(self, *jars_path: str) -> NoReturn:
        """Raise ProgramError: workers have no JVM."""
        raise ProgramError(
            "add_jars: user code runs in Python here, which cannot load Java archives: remove the call"
        )

    def add_classpaths(self, *classpaths: str) -> NoReturn:
        """Raise ProgramError: workers have no JVM."""
        raise ProgramError(
            "add_classpaths: user code runs in Python here, which cannot load Java classes: remove the call"
        )

    def _parallelism_set(self) -> int | None:
        parallelism = self._settings.get(PARALLELISM)
        if parallelism == ExecutionConfig.PARALLELISM_DEFAULT:
            return None
        if parallelism < 1:
            raise ConfigurationError(
                PARALLELISM.key,
                parallelism,
                "it must be at least 1, or -1 for the number of slots",
            )
        return parallelism
