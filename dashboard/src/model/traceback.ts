/** Finds the user's line in a Python traceback: the last frame that is neither Headrace's nor a library's. */

export interface Frame {
  file: string;
  line: number;
  name: string;
  /** The source of the line, where the traceback shows it. */
  source: string;
}

export interface Traceback {
  /** The last line: type and message of the exception. */
  message: string;
  user: Frame | null;
  frames: readonly Frame[];
}

const FRAME = /^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$/;
/** Folders of Headrace's package: a user's own folder may well be called `headrace`. */
const PARTS =
  "api|checkpoint|cli|client|cluster|common|connectors|core|datastream|functions|gateways|graph|metrics|network|operators|rest|rpc|" +
  "shuffle_service|spark|state|state_processor|table|task|testing|util";
/** Code that the user did not write. */
const FOREIGN = new RegExp(
  `(^|[/\\\\])(headrace[/\\\\](${PARTS})|pyspark|site-packages|dist-packages|lib[/\\\\]python\\d[.\\d]*)[/\\\\]|^<(?!ipython|stdin|string)`,
);

export function readTraceback(text: string): Traceback {
  const lines = text.split("\n");
  const frames: Frame[] = [];
  lines.forEach((line, index) => {
    const match = FRAME.exec(line);
    if (match !== null) {
      const next = lines[index + 1] ?? "";
      frames.push({
        file: match[1] ?? "",
        line: Number(match[2]),
        name: match[3] ?? "",
        source: FRAME.test(next) || !/^\s+\S/.test(next) ? "" : next.trim(),
      });
    }
  });
  const own = frames.filter((frame) => !FOREIGN.test(frame.file));
  const message = [...lines].reverse().find((line) => /^[\w.]+(:|$)/.test(line)) ?? lines.find((line) => line.trim() !== "") ?? "";
  return { message: message.trim(), user: own.at(-1) ?? null, frames };
}

/** The last two parts of a path: enough to find a file, and not a line of folders. */
export function shortFile(file: string): string {
  return file.split(/[/\\]/).slice(-2).join("/");
}
