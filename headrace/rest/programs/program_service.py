"""ProgramService: what the routes of uploaded programs work with: the files, and their runs on this very cluster."""

from typing import Final

import msgspec

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.rest.options import REST_ADDRESS, REST_PORT
from headrace.rest.programs.program_messages import ProgramOutcome, ProgramRequest
from headrace.rest.programs.program_runs import WEB_TIMEOUT, ProgramRuns
from headrace.rest.programs.uploaded_programs import (
    UPLOAD_DIRECTORY,
    UPLOAD_SIZE_MAX,
    UploadedPrograms,
)

_TARGET: Final = "execution.target"
_ATTACHED: Final = "execution.attached"


class ProgramService:
    """The programs of the cluster at `address`, whose token their processes find in its connection file."""

    def __init__(self, address: str, settings: Settings, clock: Clock) -> None:
        self.address: Final = address
        self.uploaded: Final = UploadedPrograms(
            settings.get_option(UPLOAD_DIRECTORY), settings.get_option(UPLOAD_SIZE_MAX)
        )
        self._runs: Final = ProgramRuns(clock, settings.duration_ms(WEB_TIMEOUT))

    async def run(self, request: ProgramRequest) -> ProgramOutcome:
        """Return what became of a program, whose jobs go to this cluster whatever its settings say."""
        own = {_TARGET: "remote", _ATTACHED: "false", REST_ADDRESS.key: self.address}
        given = {key: value for key, value in request.settings.items() if key != REST_PORT.key}
        return await self._runs.run(msgspec.structs.replace(request, settings={**given, **own}))

    def close(self) -> None:
        """Kill the processes, and remove temporary files."""
        self._runs.close()
        self.uploaded.close()
