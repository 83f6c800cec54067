/** Small choices that the browser keeps: colours, picked metrics. */

export function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // A browser may forbid storage: then nothing is remembered.
  }
}

export function write(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // See `read`.
  }
}
