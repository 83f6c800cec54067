"""ArtifactCache: fetches the files of a TaskManager's jobs to its host, before functions of the job are loaded.

Each file is fetched, unpacked or installed once per host, for all processes and jobs, and deleted once no process
uses it any more: some time after its job (`blob.service.cleanup.interval`), or with the processes.
"""

import asyncio
import hashlib
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.cluster.blob.archive_files import unpack
from headrace.cluster.blob.artifact_store import ArtifactLease, ArtifactStore
from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.blob.options import CLEANUP_INTERVAL, storage_parent
from headrace.cluster.blob.virtual_environment import (
    INSTALL_TIMEOUT,
    MissingInterpreterError,
    make_virtual_environment,
    move_programs,
    packages_of,
    refuse_loaded_packages,
)
from headrace.core.config import Settings
from headrace.core.ids import BlobKey, JobId, size_text
from headrace.core.threads import BlockingRunner
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import ArtifactKind, JobArtifact
from headrace.graph.pipeline_options import (
    ARTIFACT_SIZE_MAX,
    CACHED_FILES,
    PYTHON_ARCHIVES,
    PYTHON_FILES,
)
from headrace.rpc.endpoint import RpcEndpoint

_LOG: Final = logging.getLogger(__name__)

Artifacts = tuple[JobArtifact, ...]
REQUIREMENT_KINDS: Final = (ArtifactKind.REQUIREMENTS, ArtifactKind.PACKAGES)


class ArtifactCache:
    """Files of the jobs whose tasks run under `endpoint`. Used on its main thread.

    `has_requirements`: the process runs in its job's environment, in which the requirements are installed.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        run_blocking: BlockingRunner,
        blobs: BlobCache,
        *,
        has_requirements: bool = False,
    ) -> None:
        settings = endpoint.settings
        self._endpoint: Final = endpoint
        self._run_blocking: Final = run_blocking
        self._blobs: Final = blobs
        self._left_out: Final = REQUIREMENT_KINDS if has_requirements else ()
        self._store: Final = ArtifactStore(storage_parent(settings, None), endpoint.clock)
        self._cleanup_ms: Final = settings.duration_ms(CLEANUP_INTERVAL)
        # Files that exist or are being fetched: every task of the job awaits the same future.
        self._jobs: dict[JobId, asyncio.Future[None]] = {}
        self._leases: dict[JobId, list[ArtifactLease]] = {}
        # Counts the arrivals and departures of each job: a release planned before the last one is void.
        self._versions: dict[JobId, int] = {}

    async def provide(
        self, job_id: JobId, artifacts: Artifacts, settings: Settings, server_address: str
    ) -> None:
        """Fetch the files of a job to this host; after a failure, the next task tries again.

        BlobError if a transfer fails, RequirementsNotInstalledError or PackageConflictError if packages cannot be
        installed.
        """
        self._versions[job_id] = self._versions.get(job_id, 0) + 1
        files = self._jobs.get(job_id)
        if files is None:
            files = self._jobs[job_id] = self._endpoint.spawn_shared(
                lambda: self._bring_once(job_id, artifacts, settings, server_address),
                f"fetch files of {job_id}",
            )
        await asyncio.shield(files)

    def open(self) -> None:
        """Delete files left behind by killed processes of this host. Later, only jobs with files repeat this."""
        self._endpoint.spawn(self._tidy_up(), "tidy up files of jobs")

    async def _tidy_up(self) -> None:
        await self._run_blocking("artifacts: tidy up", self._store.delete_unused)

    def release_job(self, job_id: JobId) -> None:
        """Delete the files of a job that no longer runs here after a while, unless it comes back."""
        if job_id not in self._jobs:
            return
        version = self._versions[job_id] = self._versions[job_id] + 1

        def release() -> None:
            if self._versions.get(job_id) == version:
                self._endpoint.spawn(self._release(job_id), f"release files of {job_id}")

        self._endpoint.schedule_run_async(self._cleanup_ms, release)

    async def close(self) -> None:
        """Release all files."""
        for job_id in tuple(self._leases):
            await self._release(job_id)

    async def _release(self, job_id: JobId) -> None:
        self._versions.pop(job_id, None)
        self._jobs.pop(job_id, None)
        for lease in self._leases.pop(job_id, ()):
            await self._run_blocking("artifacts: release", lease.release)

    async def _bring_once(
        self, job_id: JobId, artifacts: Artifacts, settings: Settings, server_address: str
    ) -> None:
        try:
            await self._bring(job_id, artifacts, settings, server_address)
        except BaseException:
            await self._release(job_id)
            raise

    async def _bring(
        self, job_id: JobId, artifacts: Artifacts, settings: Settings, server_address: str
    ) -> None:
        leases = self._leases[job_id] = []
        await self._tidy_up()
        packages: Path | None = None
        for artifact in _in_order(artifacts):
            if artifact.kind in self._left_out:
                continue
            name = entry_name(artifact, artifacts)
            lease = await self._run_blocking(
                "artifacts: wait", lambda name=name: self._store.lease(name)
            )
            leases.append(lease)
            if not lease.is_made:
                content = await self._content(job_id, artifact, server_address)
                filling = _Filling(artifact, content, packages, settings, lease.folder)
                await self._run_blocking(
                    "artifacts: make", lambda lease=lease, body=filling.fill: lease.make(body)
                )
                _LOG.info(
                    "'%s' (%s) of job %s was fetched to this host, into %s",
                    artifact.name,
                    size_text(_key_of(artifact).size_bytes),
                    job_id,
                    lease.folder,
                )
            else:
                _LOG.info(
                    "'%s' of job %s is already on this host, in %s",
                    artifact.name,
                    job_id,
                    lease.folder,
                )
            if artifact.kind is ArtifactKind.PACKAGES:
                packages = lease.folder / _CONTENT
            if artifact.kind is ArtifactKind.REQUIREMENTS:
                refuse_loaded_packages(packages_of(lease.folder / _CONTENT))

    async def _content(
        self, job_id: JobId, artifact: JobArtifact, server_address: str
    ) -> bytes | memoryview:
        key = _key_of(artifact)
        if key.size_bytes == 0:
            return b""
        return await self._blobs.open(job_id, key, server_address)

    def located(self, descriptor: TaskDeploymentDescriptor) -> TaskDeploymentDescriptor:
        """Return the descriptor of a task with settings that give the paths of the job's files on this host."""
        if not descriptor.artifacts:
            return descriptor
        artifacts = tuple(one for one in descriptor.artifacts if one.kind not in self._left_out)
        settings = located_settings(self._store, artifacts, descriptor.settings)
        return msgspec.structs.replace(descriptor, settings=settings)


def located_settings(
    store: ArtifactStore, artifacts: Artifacts, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a job with the paths of its files in `store`."""
    archives: list[str] = []
    cached: list[str] = []
    requirements: list[str] = []
    python_files: list[str] = []
    for artifact in artifacts:
        folder = store.folder_of(entry_name(artifact, artifacts)) / _CONTENT
        match artifact.kind:
            case ArtifactKind.REQUIREMENTS:
                requirements.append(str(packages_of(folder)))
            case ArtifactKind.PACKAGES:
                pass
            case ArtifactKind.PYTHON_FILE:
                python_files.append(str(folder / _file_name(artifact)))
            case ArtifactKind.PYTHON_FOLDER:
                python_files.append(str(folder))
            case ArtifactKind.FILE:
                cached.append(f"name:{artifact.name},path:{folder / _file_name(artifact)}")
            case ArtifactKind.ARCHIVE if artifact.is_cached_file:
                cached.append(f"name:{artifact.name},path:{folder}")
            case ArtifactKind.ARCHIVE:
                archives.append(f"{folder}#{artifact.name}")
    if not python_files:
        # A job without files may have paths of its client's machine, which this host may be.
        python_files.append(settings.get(PYTHON_FILES.key, ""))
    here = {
        PYTHON_FILES.key: ",".join(filter(None, (*requirements, *python_files))),
        PYTHON_ARCHIVES.key: ",".join(archives),
        CACHED_FILES.key: ";".join(cached),
    }
    return {**settings, **here}


def make_artifacts(
    store: ArtifactStore,
    artifacts: Artifacts,
    settings: Settings,
    content_of: Callable[[BlobKey], bytes],
    interpreter: str | None = None,
    note: Callable[[str], None] = _LOG.info,
) -> list[ArtifactLease]:
    """Put the files of a job into `store`, and return the leases on them. Blocking; raises the errors of `provide`.

    `interpreter` makes the environment of the requirements: one in an archive of the job or, if empty, that of this
    process. None also means that of this process, whose own packages they become. `note` is called with a line for each
    file.
    """
    leases: list[ArtifactLease] = []
    try:
        packages: Path | None = None
        for artifact in _in_order(artifacts):
            lease = store.lease(entry_name(artifact, artifacts, interpreter))
            leases.append(lease)
            if lease.is_made:
                note(f"'{artifact.name}' of the job is already on this host, in {lease.folder}")
            else:
                content, python = content_of(_key_of(artifact)), sys.executable
                if artifact.kind is ArtifactKind.REQUIREMENTS and interpreter:
                    python = str(_archived(store, artifacts, interpreter))
                filling = _Filling(artifact, content, packages, settings, lease.folder, python)
                lease.make(filling.fill)
                note(f"'{artifact.name}' of the job was fetched to this host, into {lease.folder}")
            if artifact.kind is ArtifactKind.PACKAGES:
                packages = lease.folder / _CONTENT
            if artifact.kind is ArtifactKind.REQUIREMENTS and interpreter is None:
                refuse_loaded_packages(packages_of(lease.folder / _CONTENT))
    except BaseException:
        for lease in leases:
            lease.release()
        raise
    return leases


def environment_interpreter(store: ArtifactStore, artifacts: Artifacts, interpreter: str) -> Path:
    """Return the interpreter of the environment that `make_artifacts` has made, which TaskManagers use.

    MissingInterpreterError if the job's archive does not contain it.
    """
    for one in artifacts:
        if one.kind is ArtifactKind.REQUIREMENTS:
            folder = store.folder_of(entry_name(one, artifacts, interpreter))
            return folder / _CONTENT / "bin" / "python"
    return _archived(store, artifacts, interpreter)


def _archived(store: ArtifactStore, artifacts: Artifacts, interpreter: str) -> Path:
    name, _, path = interpreter.partition("/")
    archive = next(one for one in artifacts if one.name == name)
    found = store.folder_of(entry_name(archive, artifacts)) / _CONTENT / path
    if not found.is_file():
        raise MissingInterpreterError(archive.name, path)
    return found


def _in_order(artifacts: Artifacts) -> Artifacts:
    """Sort packages first, because requirements are installed from them."""
    return tuple(sorted(artifacts, key=lambda one: one.kind is ArtifactKind.REQUIREMENTS))


_CONTENT: Final = "content"


class _Filling:
    """Makes the entry of one artifact in an empty folder, for its place in `folder`. Blocking."""

    def __init__(
        self,
        artifact: JobArtifact,
        content: bytes | memoryview,
        packages: Path | None,
        settings: Settings,
        folder: Path,
        interpreter: str = sys.executable,
    ) -> None:
        self._artifact: Final = artifact
        self._content: Final = content
        self._packages: Final = packages
        self._settings: Final = settings
        self._folder: Final = folder
        self._interpreter: Final = interpreter

    def fill(self, scratch: Path) -> None:
        """Write the content to `scratch`/content."""
        artifact, target = self._artifact, scratch / _CONTENT
        if artifact.kind in (ArtifactKind.FILE, ArtifactKind.PYTHON_FILE):
            target.mkdir()
            self._write(target / _file_name(artifact), 0o700 if artifact.is_executable else 0o600)
            return
        file = scratch / _file_name(artifact)
        self._write(file, 0o600)
        if artifact.kind is ArtifactKind.REQUIREMENTS:
            timeout_s = self._settings.duration_ms(INSTALL_TIMEOUT) / 1000
            make_virtual_environment(self._interpreter, file, self._packages, target, timeout_s)
            move_programs(target, self._folder / _CONTENT)
        else:
            unpack(file, target, int(self._settings.get_option(ARTIFACT_SIZE_MAX)))
        file.unlink()

    def _write(self, file: Path, mode: int) -> None:
        with file.open("xb") as out:
            out.write(self._content)
        file.chmod(mode)


def entry_name(artifact: JobArtifact, artifacts: Artifacts, interpreter: str | None = None) -> str:
    """Return the name of an artifact's entry; equal names mean equal content.

    `interpreter`, in an archive of `artifacts`, makes the environment of requirements; otherwise that of this process
    does.
    """
    digest = hashlib.sha256(f"{artifact.kind.value} {_file_name(artifact)}".encode())
    digest.update(b"x" if artifact.is_executable else b"-")
    digest.update(_key_of(artifact).digest)
    if artifact.kind is ArtifactKind.REQUIREMENTS:
        digest.update(f"{sys.version} {sys.prefix} {interpreter or ''}".encode())
        for other in artifacts:
            if other.kind is ArtifactKind.PACKAGES or (
                interpreter and other.kind is ArtifactKind.ARCHIVE
            ):
                digest.update(_key_of(other).digest)
    return digest.hexdigest()


def _key_of(artifact: JobArtifact) -> BlobKey:
    assert artifact.key is not None, "an artifact on a TaskManager has the key of its blob"
    return artifact.key


def _file_name(artifact: JobArtifact) -> str:
    """Return the file name of an artifact, which came over the network, as a safe name within a folder."""
    return Path(artifact.file_name).name or "file"
