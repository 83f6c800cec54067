/** Numbers, times and sizes as people read them. */

import type { MaybeNumber } from "../types";

/** No watermark has come yet. JSON numbers lose the last digits of this value, so nearby ones count as well. */
export const NO_WATERMARK = -9.2e18;
/** The end of event time: the source has ended. */
export const LAST_WATERMARK = 9.2e18;

export function number(value: MaybeNumber | string | undefined | null): number | null {
  if (value === undefined || value === null || value === "NaN" || value === "") {
    return null;
  }
  const parsed = Number(value);
  return Number.isFinite(parsed) ? parsed : null;
}

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return "–";
  }
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 });
}

/** 1234567 becomes 1.23 M. */
export function short(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : scaled(value, 1000, ["", " k", " M", " G", " T"]);
}

export function bytes(value: number | null | undefined): string {
  return value === null || value === undefined || value < 0
    ? "–"
    : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
}

function scaled(value: number, factor: number, units: readonly string[]): string {
  let rest = value;
  let unit = 0;
  while (Math.abs(rest) >= factor && unit < units.length - 1) {
    rest /= factor;
    unit += 1;
  }
  const digits = unit === 0 ? (Math.abs(rest) < 10 ? 1 : 0) : Math.abs(rest) < 10 ? 2 : Math.abs(rest) < 100 ? 1 : 0;
  return `${Number(rest.toFixed(digits)).toLocaleString("en-US")}${units[unit]}`;
}

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || ms < 0) {
    return "–";
  }
  if (ms < 1000) {
    return `${Math.round(ms)} ms`;
  }
  const seconds = ms / 1000;
  if (seconds < 60) {
    return `${Number(seconds.toFixed(seconds < 10 ? 2 : 1))} s`;
  }
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) {
    return units(days, "d", hours, "h");
  }
  return hours > 0 ? units(hours, "h", minutes, "min") : units(minutes, "min", whole % 60, "s");
}

function units(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** Milliseconds of each second; an axis with few of them has ticks between the whole ones. */
export function msPerSecond(value: number | null): string {
  return value === null ? "–" : `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ms/s`;
}

export function percent(ratio: number | null | undefined): string {
  return ratio === null || ratio === undefined ? "–" : `${Math.round(ratio * 100)} %`;
}

/** Epoch milliseconds in the reader's zone; a dash where something has not happened. */
export function time(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || ms <= 0) {
    return "–";
  }
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? "–" : `${dateText(date)} ${clock(ms)}`;
}

function dateText(date: Date): string {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** The time of day in the reader's zone. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** A watermark; event time has its own clock, so it is written in UTC. */
export function watermark(value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return "–";
  }
  if (value <= NO_WATERMARK) {
    return "none yet";
  }
  if (value >= LAST_WATERMARK) {
    return "end of input";
  }
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? String(value) : date.toISOString().replace("T", " ").replace(/(\.000)?Z$/, "");
}

/** How far a watermark is behind the clock, or null where event time is not that of the clock (replayed data). */
export function watermarkLag(value: number | null, now: number): number | null {
  if (value === null || value <= NO_WATERMARK || value >= LAST_WATERMARK) {
    return null;
  }
  const lag = now - value;
  return lag >= -60_000 && lag < 86_400_000 ? Math.max(0, lag) : null;
}

export function plural(value: number, singular: string, several = `${singular}s`): string {
  return `${count(value)} ${value === 1 ? singular : several}`;
}

/** The share of a second, 0 to 1, that so many milliseconds of it are. */
export function share(ms: number | null): number | null {
  return ms === null ? null : ms / 1000;
}
