"""Options of a TaskManager. Keys and defaults are Flink's where the meaning is the same."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

NUMBER_OF_TASK_SLOTS: Final = ConfigOption(
    "taskmanager.numberOfTaskSlots",
    int,
    1,
    "Slots of one TaskManager; one by default, because the interpreter runs one thread at a time.",
)
CPU_CORES: Final = ConfigOption(
    "taskmanager.cpu.cores",
    float,
    0.0,
    "Cores of the host that one TaskManager takes, of which its slots have equal parts; 0: what the host gives a task.",
)
SLOT_TIMEOUT: Final = ConfigOption(
    "taskmanager.slot.timeout",
    timedelta,
    timedelta(seconds=30),
    "How long a slot waits for its JobMaster before it is free again; covers the JobMaster's cold start.",
)
REGISTRATION_TIMEOUT: Final = ConfigOption(
    "taskmanager.registration.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which a TaskManager ends that is registered nowhere.",
)
