import { describe, expect, it } from "vitest";

import type { Job } from "../types";
import { VertexRates } from "./VertexRates";

function answer(now: number, busy: number | "NaN", waiting: number, idle: number, read: number, written: number): Job {
  const metrics = {
    "accumulated-busy-time": busy,
    "accumulated-backpressured-time": waiting,
    "accumulated-idle-time": idle,
    "read-records": read,
    "write-records": written,
  };
  return { now, vertices: [{ id: "v", metrics }] } as unknown as Job;
}

describe("VertexRates", () => {
  it("makes rates of what has grown between two answers", () => {
    const rates = new VertexRates();
    rates.observe(answer(0, 100, 0, 100, 10, 5));
    expect(rates.of("v")).toBeUndefined();
    rates.observe(answer(2000, 1700, 200, 300, 2010, 1005));
    const found = rates.of("v");
    expect([found?.busy.max, found?.backPressured.max, found?.idle.avg]).toEqual([800, 100, 100]);
    expect([found?.recordsIn.sum, found?.recordsOut.sum]).toEqual([1000, 500]);
  });

  it("keeps its rates while answers say the same again", () => {
    const rates = new VertexRates();
    rates.observe(answer(0, 0, 0, 0, 0, 0));
    rates.observe(answer(1000, 500, 0, 500, 10, 10));
    rates.observe(answer(4000, 500, 0, 500, 10, 10));
    expect(rates.of("v")?.recordsIn.sum).toBe(10);
    rates.observe(answer(11_000, 5500, 0, 5500, 110, 110));
    expect(rates.of("v")?.recordsIn.sum).toBe(10);
  });

  it("begins anew after a restart, when totals are smaller", () => {
    const rates = new VertexRates();
    rates.observe(answer(0, 10, 0, 0, 100, 100));
    rates.observe(answer(1000, 20, 0, 0, 200, 200));
    rates.observe(answer(2000, 1, 0, 0, 5, 5));
    expect(rates.of("v")).toBeUndefined();
  });

  it("knows no shares of time where none was measured", () => {
    const rates = new VertexRates();
    rates.observe(answer(0, "NaN", 0, 0, 0, 0));
    rates.observe(answer(1000, "NaN", 0, 0, 7, 0));
    expect([rates.of("v")?.busy.max, rates.of("v")?.recordsIn.sum]).toEqual([null, 7]);
  });
});
