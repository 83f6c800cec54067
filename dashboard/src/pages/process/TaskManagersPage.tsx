/** All TaskManagers, their slots and their memory. */

import type { JSX } from "preact";

import * as api from "../../api";
import { Panel, Share, Waiting } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { bytes, duration, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import type { TaskManager } from "../../types";

export function TaskManagersPage(): JSX.Element {
  const { data, failed } = usePoll("TaskManagers", api.taskManagers, []);
  return (
    <>
      <h1>TaskManagers</h1>
      <Panel title="TaskManagers">
        {data === undefined ? (
          <Waiting what="Asking for the TaskManagers" failed={failed} />
        ) : (
          <DataTable
            caption="TaskManagers of the cluster"
            rows={data}
            rowKey={(row) => row.id}
            empty="No TaskManager is registered: they come with the first job."
            columns={[
              {
                title: "TaskManager",
                wraps: true,
                cell: (row) => (
                  <>
                    <a href={link(["task-manager", row.id])}>{row.id}</a>
                    <Leaving of={row} />
                  </>
                ),
                order: (row) => row.id,
              },
              { title: "address", wraps: true, cell: (row) => row.path, order: (row) => row.path },
              {
                title: "slots in use",
                cell: (row) => {
                  const used = row.slotsNumber - row.freeSlots;
                  return (
                    <>
                      {used} of {row.slotsNumber}{" "}
                      <Share value={row.slotsNumber === 0 ? 0 : used / row.slotsNumber} label={`${used} of ${row.slotsNumber} slots are in use`} />
                    </>
                  );
                },
                order: (row) => row.slotsNumber - row.freeSlots,
              },
              { title: "cores", cell: (row) => row.hardware.cpuCores, order: (row) => row.hardware.cpuCores, numeric: true },
              {
                title: "memory of the process",
                cell: (row) => bytes(row.memoryConfiguration.totalProcessMemory),
                order: (row) => row.memoryConfiguration.totalProcessMemory,
                numeric: true,
              },
              { title: "managed", cell: (row) => bytes(row.memoryConfiguration.managedMemory), order: (row) => row.memoryConfiguration.managedMemory, numeric: true },
              { title: "last heartbeat", cell: (row) => <LastHeartbeat of={row} />, order: (row) => row.timeSinceLastHeartbeat },
            ]}
          />
        )}
      </Panel>
    </>
  );
}

/** What a TaskManager that its host takes away is about to do; nothing where it stays. */
export function Leaving({ of }: { of: TaskManager }): JSX.Element | null {
  return of.decommissioned === undefined ? null : <p class="problem">leaving: its executor is {of.decommissioned}</p>;
}

/** When a TaskManager answered last, and, where that is known, which function keeps it from answering. */
export function LastHeartbeat({ of }: { of: TaskManager }): JSX.Element {
  const held = of.heldInterpreterLock;
  return (
    <>
      {time(of.timeSinceLastHeartbeat)}
      {held !== undefined && (
        <p class="problem">
          alive, but its interpreter lock is held for {duration(held.duration)} in {held.function || "code that no stack names"}
        </p>
      )}
    </>
  );
}
