import { describe, expect, it } from "vitest";

import { readTraceback, shortFile } from "./traceback";

const TEXT = `Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/headrace/task/stream_task.py", line 210, in run
    self._process(batch)
  File "/srv/ada/jobs/orders.py", line 42, in parse
    return int(row["amount"])
           ^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/json/decoder.py", line 5, in decode
ValueError: invalid literal for int() with base 10: 'x'
`;

describe("readTraceback", () => {
  it("finds the last frame that is the user's, with its source", () => {
    expect(readTraceback(TEXT).user).toEqual({
      file: "/srv/ada/jobs/orders.py",
      line: 42,
      name: "parse",
      source: 'return int(row["amount"])',
    });
  });

  it("takes type and message from the last line", () => {
    expect(readTraceback(TEXT).message).toBe("ValueError: invalid literal for int() with base 10: 'x'");
  });

  it("has no user's frame where all are the runtime's, and no frame in a plain message", () => {
    const inside = 'Traceback:\n  File "/x/headrace/rpc/tcp.py", line 1, in f\nConnectionError: lost';
    expect(readTraceback(inside).user).toBeNull();
    expect(readTraceback("the TaskManager is lost")).toEqual({ message: "the TaskManager is lost", user: null, frames: [] });
  });

  it("takes a folder that is only called like the runtime for the user's", () => {
    expect(readTraceback('  File "/srv/headrace/jobs/a.py", line 2, in f\nKeyError: 1').user?.file).toBe("/srv/headrace/jobs/a.py");
    expect(readTraceback('  File "/srv/headrace_jobs/a.py", line 2, in f\nKeyError: 1').user?.line).toBe(2);
  });

  it("counts cells of notebooks as the user's", () => {
    expect(readTraceback('  File "<ipython-input-3-ab>", line 2, in f\nKeyError: 1').user?.line).toBe(2);
  });

  it("shortens a path to the file and its folder", () => {
    expect(shortFile("/srv/ada/jobs/orders.py")).toBe("jobs/orders.py");
  });
});
