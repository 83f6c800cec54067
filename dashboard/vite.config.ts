import { defineConfig } from "vite";

/** Builds the files that the wheel ships: relative addresses, so that the page works below any `rest.url-prefix`. */
export default defineConfig({
  base: "./",
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
