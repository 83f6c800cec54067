import { describe, expect, it } from "vitest";

import { link, parseRoute, tokenOf } from "./router";

describe("router", () => {
  it("reads what it wrote", () => {
    const route = parseRoute(link(["task-manager", "10.0.0.1:4711-ab/c"], { tab: "logs" }));
    expect(route.parts).toEqual(["task-manager", "10.0.0.1:4711-ab/c"]);
    expect(route.query.get("tab")).toBe("logs");
  });

  it("leads addresses of Flink's dashboard to the same pages", () => {
    expect(parseRoute("#/job/running/ab/overview").parts).toEqual(["job", "ab", "overview"]);
    expect(parseRoute("#/job/completed").parts).toEqual(["ended-jobs"]);
  });

  it("takes an address that is no proper encoding as it stands", () => {
    expect(parseRoute("#/job/%E0%A4%A").parts).toEqual(["job", "%E0%A4%A"]);
  });

  it("finds the token of an address and nothing else", () => {
    expect(tokenOf("#token=a%2Fb")).toBe("a/b");
    expect(tokenOf("#/?token=x")).toBe("x");
    expect(tokenOf("#/job/token=x")).toBeNull();
    expect(tokenOf("")).toBeNull();
  });
});
