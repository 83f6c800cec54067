import { describe, expect, it } from "vitest";

import { keysInText, shownValue, valueInText } from "./stateText";

describe("keys in a text", () => {
  it("are a list, one key, several keys, or a word", () => {
    expect(keysInText(" ")).toBeUndefined();
    expect(keysInText("[3, 7]")).toBe("[3, 7]");
    expect(keysInText("7")).toBe("[7]");
    expect(keysInText("3, 7")).toBe("[3, 7]");
    expect(keysInText('"a b"')).toBe('["a b"]');
    expect(keysInText("paris")).toBe('["paris"]');
    expect(keysInText('{"city": "paris"}')).toBe('[{"city": "paris"}]');
  });
  it("keep the digits of large numbers", () => {
    expect(keysInText("9007199254740993")).toBe("[9007199254740993]");
  });
});

describe("a value in a text", () => {
  it("is JSON", () => {
    expect(valueInText('{"n": 1}')).toEqual({ n: 1 });
    expect(() => valueInText("paris")).toThrow();
  });
  it("keeps the digits of a large number as a text", () => {
    expect(valueInText("9007199254740993")).toBe("9007199254740993");
    expect(valueInText("1.5")).toBe(1.5);
  });
});

describe("a shown value", () => {
  it("has no quotation marks around a text", () => {
    expect(shownValue("paris")).toBe("paris");
    expect(shownValue(["paris", 1])).toBe('["paris",1]');
    expect(shownValue(null)).toBe("null");
  });
});
