/** What the whole page knows of the cluster: the answer of `/config`. */

import { createContext } from "preact";

import type { DashboardConfiguration } from "../types";

export const Cluster = createContext<DashboardConfiguration | null>(null);
