/** Offsets and text in UTF-8. */

/** Bytes of the character that begins with a byte. */
export function characterLength(first: number): number {
  return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/** Decodes bytes; those that are not part of a character become U+FFFD. */
export function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** For each byte of valid text, and its end: its offset in UTF-16 units. */
export function utf16Offsets(text: Uint8Array): Int32Array {
  const offsets = new Int32Array(text.length + 1);
  let unit = 0;
  for (let start = 0; start < text.length; ) {
    const length = characterLength(text[start]!);
    offsets.fill(unit, start, start + length);
    start += length;
    unit += length === 4 ? 2 : 1;
  }
  offsets[text.length] = unit;
  return offsets;
}
