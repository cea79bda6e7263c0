/**
 * A set of keys of bytes, which is searched byte by byte. A node is a number, 0 the root. The children of all nodes are
 * in one hash table with open addressing, whose keys are a node and a byte.
 */
export class Trie {
  /** For each node: the value of the key that ends there, or -1. */
  private values = new Int32Array(4096).fill(-1);
  private nodes = 1;
  private keys = new Float64Array(4096).fill(-1);
  private children = new Int32Array(4096);

  /** Adds a key. */
  add(key: Uint8Array, value: number): void {
    let node = 0;
    for (const byte of key) {
      let slot = this.slot(node, byte);
      if (this.keys[slot] === -1) {
        if (2 * this.nodes >= this.keys.length) {
          this.grow();
          slot = this.slot(node, byte);
        }
        this.keys[slot] = node * 256 + byte;
        this.children[slot] = this.nodes++;
      }
      node = this.children[slot]!;
    }
    this.values[node] = value;
  }

  /** The node after a byte; -1 if no key goes on with it. */
  next(node: number, byte: number): number {
    const slot = this.slot(node, byte);
    return this.keys[slot] === -1 ? -1 : this.children[slot]!;
  }

  /** The value of the key that ends at a node; -1 if none does. */
  value(node: number): number {
    return this.values[node]!;
  }

  /** The value of a key; -1 if there is no such key. */
  get(data: Uint8Array, start: number, end: number): number {
    let node = 0;
    for (let offset = start; offset < end && node >= 0; offset++) node = this.next(node, data[offset]!);
    return node < 0 ? -1 : this.value(node);
  }

  /** The length of the longest key that the data has at an offset; 0 if there is none. */
  longest(data: Uint8Array, start: number): number {
    let length = 0;
    let node = 0;
    for (let offset = start; offset < data.length; offset++) {
      node = this.next(node, data[offset]!);
      if (node < 0) break;
      if (this.value(node) >= 0) length = offset + 1 - start;
    }
    return length;
  }

  /** Where a child is in the table, or the empty slot where it would be. */
  private slot(node: number, byte: number): number {
    const mask = this.keys.length - 1;
    const key = node * 256 + byte;
    const mixed = Math.imul(node ^ (byte << 23), 0x9e3779b1);
    let slot = (mixed ^ (mixed >>> 15)) & mask;
    while (this.keys[slot] !== -1 && this.keys[slot] !== key) slot = (slot + 1) & mask;
    return slot;
  }

  private grow(): void {
    const { keys, children, values } = this;
    this.keys = new Float64Array(2 * keys.length).fill(-1);
    this.children = new Int32Array(2 * keys.length);
    this.values = new Int32Array(this.keys.length).fill(-1); // there are at most half as many nodes
    this.values.set(values);
    for (let old = 0; old < keys.length; old++) {
      if (keys[old] === -1) continue;
      const slot = this.slot(Math.floor(keys[old]! / 256), keys[old]! % 256);
      this.keys[slot] = keys[old]!;
      this.children[slot] = children[old]!;
    }
  }
}
