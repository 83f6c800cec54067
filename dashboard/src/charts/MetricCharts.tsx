/** Charts of metrics that the reader picks; values are collected while the page is open. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { usePoll } from "../model/poll";
import { read, write } from "../model/storage";
import { Search, Waiting } from "../components/Basics";
import { formatMetric } from "./formatMetric";
import { LineChart, type Line } from "./LineChart";

/** Points that are kept per chart: half an hour at one poll every three seconds. */
const POINTS_MAX = 600;
const PICKED_MAX = 12;
const LISTED_MAX = 200;

/** The values of one metric at one moment, by line: subtask, or min, avg and max. */
export type Sample = Readonly<Record<string, number | null>>;

export function MetricCharts(props: {
  /** What the picked names are kept under in the browser. */
  kind: string;
  keys: readonly unknown[];
  defaults: readonly string[];
  names(signal: AbortSignal): Promise<string[]>;
  values(names: readonly string[], signal: AbortSignal): Promise<Map<string, Sample>>;
}): JSX.Element {
  const [picked, setPicked] = useState<readonly string[]>(() => stored(props.kind) ?? props.defaults);
  const [search, setSearch] = useState("");
  const names = usePoll("Names of metrics", props.names, [props.kind, ...props.keys], "once");
  const list = useMemo(() => [...(names.data ?? [])].sort(), [names.data]);
  const present = useMemo(() => new Set(list), [list]);
  const asked = picked.filter((name) => present.has(name));
  const series = useSeries(props.values, [...props.keys, ...asked], asked);
  const pick = (name: string, on: boolean): void => {
    const next = on ? [...picked, name].slice(-PICKED_MAX) : picked.filter((each) => each !== name);
    setPicked(next);
    write(`headrace.metrics.${props.kind}`, JSON.stringify(next));
  };
  if (names.data === undefined) {
    return <Waiting what="Asking for the names of metrics" failed={names.failed} />;
  }
  const needle = search.toLowerCase();
  const found = list.filter((name) => name.toLowerCase().includes(needle));
  return (
    <div class="metrics">
      <fieldset class="picker">
        <legend>Metrics to chart (at most {PICKED_MAX})</legend>
        <Search label="Find a metric" value={search} onChange={setSearch} />
        <div class="picker-list" tabIndex={0} role="group" aria-label="Metrics">
          {found.slice(0, LISTED_MAX).map((name) => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={picked.includes(name)}
                onChange={(event) => pick(name, event.currentTarget.checked)}
              />
              <span>{name}</span>
            </label>
          ))}
        </div>
        <p class="quiet-text" role="status">
          {found.length > LISTED_MAX ? `${LISTED_MAX} of ${found.length} metrics; search for others` : `${found.length} metrics`}
        </p>
      </fieldset>
      <div class="charts">
        {asked.length === 0 ? <p class="empty">Pick a metric.</p> : null}
        {asked.map((name) => {
          const one = series.get(name);
          return (
            <LineChart
              key={name}
              title={name}
              times={one?.times ?? []}
              lines={one?.lines ?? []}
              format={(value) => formatMetric(name, value)}
            />
          );
        })}
      </div>
    </div>
  );
}

interface Series {
  times: number[];
  lines: Line[];
}

function useSeries(
  load: (names: readonly string[], signal: AbortSignal) => Promise<Map<string, Sample>>,
  keys: readonly unknown[],
  names: readonly string[],
): Map<string, Series> {
  const kept = useRef(new Map<string, { time: number; sample: Sample }[]>());
  const polled = usePoll(
    "Metrics",
    async (signal) => ({ time: Date.now(), values: names.length === 0 ? new Map<string, Sample>() : await load(names, signal) }),
    keys,
  );
  const place = JSON.stringify(keys.slice(0, keys.length - names.length));
  const shownPlace = useRef(place);
  const [series, setSeries] = useState(new Map<string, Series>());
  useEffect(() => {
    if (shownPlace.current !== place) {
      shownPlace.current = place;
      kept.current.clear();
    }
    if (polled.data === undefined) {
      return;
    }
    for (const [name, sample] of polled.data.values) {
      const points = kept.current.get(name) ?? [];
      points.push({ time: polled.data.time, sample });
      kept.current.set(name, points.slice(-POINTS_MAX));
    }
    setSeries(new Map([...kept.current].map(([name, points]) => [name, seriesOf(points)])));
  }, [polled.data, place]);
  return series;
}

function seriesOf(points: readonly { time: number; sample: Sample }[]): Series {
  const labels = [...new Set(points.flatMap((point) => Object.keys(point.sample)))];
  return {
    times: points.map((point) => point.time),
    lines: labels.map((label) => ({ label, values: points.map((point) => point.sample[label] ?? null) })),
  };
}

function stored(kind: string): string[] | null {
  try {
    const value: unknown = JSON.parse(read(`headrace.metrics.${kind}`) ?? "null");
    return Array.isArray(value) ? value.filter((each) => typeof each === "string") : null;
  } catch {
    return null;
  }
}
