import { afterEach, describe, expect, it, vi } from "vitest";

import listed from "../routes.json";
import * as api from "./api";

function answer(status: number, body: unknown): Response {
  return new Response(JSON.stringify(body), { status });
}

function serve(...responses: Response[]): { url: string; init: RequestInit }[] {
  const calls: { url: string; init: RequestInit }[] = [];
  vi.stubGlobal("document", { baseURI: "http://host:8081/prefix/index.html#/overview" });
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    calls.push({ url, init });
    return responses.shift() as Response;
  });
  return calls;
}

describe("api", () => {
  afterEach(() => void vi.unstubAllGlobals());

  it("uses exactly the routes that routes.json lists", () => {
    expect([...Object.values(api.ROUTES)].sort()).toEqual(listed.routes.map((each) => `${each.method} ${each.path}`).sort());
  });

  it("asks beside the page, with what a path cannot hold encoded", async () => {
    const calls = serve(answer(200, []));
    await api.taskManagerMetrics("10.0.0.1:4711-ab/c", ["a", "b.c"]);
    expect(calls[0]?.url).toBe("http://host:8081/prefix/taskmanagers/10.0.0.1%3A4711-ab%2Fc/metrics?get=a%2Cb.c");
  });

  it("tells an error by the line that says something", async () => {
    serve(answer(500, { errors: ["Internal server error.", "KeyError: 'x'\n at y"] }));
    const error = await api.overview().catch((caught: unknown) => caught);
    expect((error as api.ApiError).headline).toBe("KeyError: 'x'");
    expect((error as api.ApiError).status).toBe(500);
  });

  it("takes an error that is no JSON by its status", async () => {
    serve(new Response("<html>Bad gateway</html>", { status: 502 }));
    await expect(api.overview()).rejects.toThrow("status 502");
  });

  it("says that the cluster does not answer where nobody does", async () => {
    vi.stubGlobal("document", { baseURI: "http://host/" });
    vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("Failed to fetch")));
    await expect(api.overview()).rejects.toMatchObject({ status: 0 });
  });

  it("asks for the token where one is wanted", async () => {
    serve(answer(401, { errors: ["no token"] }));
    const asked = vi.fn();
    api.setUnauthorizedHandler(asked);
    await expect(api.config()).rejects.toMatchObject({ status: 401 });
    expect(asked).toHaveBeenCalledTimes(1);
  });

  it("hands the token over in the body, never in the address", async () => {
    const calls = serve(answer(200, {}));
    await api.createSession("secret");
    expect(calls[0]?.url).not.toContain("secret");
    expect(calls[0]?.init.body).toBe('{"token":"secret"}');
  });

  it("asks for a savepoint in the format chosen, and likewise to stop with one", async () => {
    const calls = serve(answer(202, { "request-id": "a" }), answer(202, { "request-id": "b" }));
    await api.triggerSavepoint("ab", { directory: "/data", format: "NATIVE" });
    await api.stopJob("ab", { directory: undefined, format: "CANONICAL" }, true);
    expect(calls.map((call) => [call.url, JSON.parse(String(call.init.body))])).toEqual([
      ["http://host:8081/prefix/jobs/ab/savepoints", { "target-directory": "/data", formatType: "NATIVE", "cancel-job": false }],
      ["http://host:8081/prefix/jobs/ab/stop", { formatType: "CANONICAL", drain: true }],
    ]);
  });

  it("takes missing checkpoints for checkpointing that is off, and asks no more", async () => {
    const calls = serve(answer(404, { errors: ["Checkpointing is not enabled"] }));
    expect(await api.checkpoints("ab")).toBeNull();
    expect(await api.checkpoints("ab")).toBeNull();
    expect(await api.checkpointConfig("ab")).toBeNull();
    expect(calls).toHaveLength(1);
  });

  it("keeps the end of a log that is too long", async () => {
    const long = "x".repeat(3 * api.LOG_TAIL_BYTES);
    const calls = serve(new Response(`${long}the end`));
    const text = await api.jobManagerLog("jobmanager.log");
    expect(text.length).toBeLessThanOrEqual(2 * api.LOG_TAIL_BYTES);
    expect(text.endsWith("the end")).toBe(true);
    expect((calls[0]?.init.headers as Record<string, string>)["Range"]).toBe(`bytes=-${api.LOG_TAIL_BYTES}`);
  });

  it("shows an empty log as empty", async () => {
    serve(answer(416, { errors: ["range"] }));
    expect(await api.jobManagerStdout()).toBe("");
  });
});
