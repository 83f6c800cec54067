import { existsSync, readFileSync } from "node:fs";

import { defineConfig, type Plugin } from "vite";

/** Ships the licences of all packages that are part of the script, as they ask for. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === "chunk" ? Object.keys(chunk.modules) : []) {
          const match = /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id);
          if (match !== null) {
            folders.add(match[0].replace(/^\0/, ""));
          }
        }
      }
      const texts = [...folders].sort().map((folder) => {
        const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
        const file = ["LICENSE", "LICENSE.md", "license", "LICENSE.txt"].map((each) => `${folder}/${each}`).find(existsSync);
        if (file === undefined) {
          throw new Error(`${name} has no licence file`);
        }
        return `${name} ${version} (${license})\n\n${readFileSync(file, "utf8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.join("\n\n") });
    },
  };
}

/** Builds the files that the wheel ships: relative addresses, so that the page works below any `rest.url-prefix`. */
export default defineConfig({
  base: "./",
  plugins: [licenses()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../headrace/rest/dashboard",
    emptyOutDir: true,
    target: "es2022",
    // Data addresses of pictures would need an exception in the page's content policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1024,
  },
});
