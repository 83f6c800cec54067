"""Types of PyFlink's that exist for the sake of Java classes: importable, refused when used."""

from typing import Final

from headrace.core.pyflink_refusals import jvm_only

LocalTimeTypeInfo: Final = jvm_only(
    "LocalTimeTypeInfo", "use Types.SQL_DATE(), Types.SQL_TIME() or Types.SQL_TIMESTAMP()"
)
ExternalTypeInfo: Final = jvm_only("ExternalTypeInfo", "use the type that it would wrap")
