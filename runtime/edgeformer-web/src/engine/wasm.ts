/** The kernels' WebAssembly: loading it, and memory that is given to it. */
import { EdgeformerError } from "../errors.js";
import { isNode, OWN_MODULES } from "../platform.js";

/** Where the kernels' WebAssembly comes from, if not from this package: an address, its bytes, or compiled. */
export type WasmSource = string | URL | BufferSource | WebAssembly.Module;

/** A function of `edgeformer_kernels.h`, which has its parameters: pointers are numbers, whole numbers of 64 bits bigints. */
type KernelFunction = (...values: (number | bigint)[]) => number;
type KernelFunctionName = "open" | "start" | "end" | "step" | "attend" | "select" | "restrict" | "search" | "levels";

/** What the module exports. */
export interface KernelExports extends Record<`edgeformer_${KernelFunctionName}`, KernelFunction> {
  memory: WebAssembly.Memory;
  _initialize(): void;
  malloc(size: number): number;
  free(address: number): void;
  /** Version of the interface that the module was compiled with. */
  edgeformer_version?(): bigint;
}

/**
 * Loads and starts the module for this machine: with relaxed SIMD, which takes half the time, if the machine has it and
 * its products are exact; without, otherwise. Both compute the same bits.
 *
 * @throws EdgeformerError of kind `engine`: the module cannot be loaded.
 */
export async function startKernels(source?: WasmSource): Promise<KernelExports> {
  if (source !== undefined) return start(await compile(source));
  return start(await compile(hasExactRelaxedSimd() ? OWN_MODULES.relaxed : OWN_MODULES.plain));
}

/**
 * A module with one function, `dot`, the product of relaxed SIMD: it adds four products of two 8-bit numbers to 1. Asking
 * it takes less than downloading the larger module for nothing.
 */
const DOT = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00], // WebAssembly, version 1
  ...[0x01, 0x07, 0x01, 0x60, 0x02, 0x7f, 0x7f, 0x01, 0x7f], // types: (i32, i32) -> i32
  ...[0x03, 0x02, 0x01, 0x00], // functions: one of the first type
  ...[0x07, 0x07, 0x01, 0x03, 0x64, 0x6f, 0x74, 0x00, 0x00], // exports: "dot"
  ...[0x0a, 0x16, 0x01, 0x14, 0x00], // code: one function without variables
  ...[0x20, 0x00, 0xfd, 0x0f, 0x20, 0x01, 0xfd, 0x0f], // both arguments, each in 16 lanes
  ...[0x41, 0x01, 0xfd, 0x11], // 1 in four lanes
  ...[0xfd, 0x93, 0x02, 0xfd, 0x1b, 0x00, 0x0b], // i32x4.relaxed_dot_i8x16_i7x16_add_s, first lane
);

/** Whether this machine has relaxed SIMD with products that the kernels can use; they check it again when they start. */
function hasExactRelaxedSimd(): boolean {
  try {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(DOT));
    const { dot } = exports as { dot: (weight: number, input: number) => number };
    const [largest, smallest, middle] = [dot(127, 255), dot(-128, 255), dot(-128, 128)];
    const isUnsigned = largest === 1 + 4 * 127 * 255 && smallest === 1 - 4 * 128 * 255;
    return isUnsigned || (largest === 1 - 4 * 127 && smallest === 1 + 4 * 128 && middle === 1 + 4 * 128 * 128);
  } catch {
    return false; // it has no relaxed SIMD
  }
}

async function compile(source: WasmSource): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  const isAddress = typeof source === "string" || source instanceof URL;
  try {
    return await WebAssembly.compile(isAddress ? await readBytes(new URL(source)) : source);
  } catch (error) {
    throw new EdgeformerError("engine", `The kernels cannot be loaded${isAddress ? ` from ${source}` : ""}: ${error}.`);
  }
}

/** `EDGEFORMER_VERSION` of `edgeformer_kernels.h`. */
const INTERFACE_VERSION = 2n;

/** Starts a module, which imports nothing. */
async function start(module: WebAssembly.Module): Promise<KernelExports> {
  const { exports } = await WebAssembly.instantiate(module, {});
  const kernels = exports as unknown as KernelExports;
  if (kernels.edgeformer_version?.() !== INTERFACE_VERSION)
    throw new EdgeformerError(
      "engine",
      "The kernels' module is of another version of this package; take both from one.",
    );
  kernels._initialize();
  return kernels;
}

async function readBytes(address: URL): Promise<BufferSource> {
  if (isNode && address.protocol === "file:") {
    const { readLocalFile } = await import("../bundle/folder.js");
    return readLocalFile(address);
  }
  const response = await fetch(address);
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.arrayBuffer();
}

const ALIGNMENT = 64;

/** Memory of the module that is used again and again: each buffer grows to the most that it has ever held. */
export class ScratchMemory {
  readonly #buffers = new Map<string, { raw: number; address: number; size: number }>();

  constructor(private readonly kernels: KernelExports) {}

  /**
   * The address of a buffer of some bytes, a multiple of 64; what the buffer held may be lost.
   *
   * @throws EdgeformerError of kind `engine`: there is not enough memory.
   */
  reserve(name: string, size: number): number {
    const old = this.#buffers.get(name);
    if (old && old.size >= size) return old.address;
    if (old) this.kernels.free(old.raw);
    this.#buffers.delete(name);
    const raw = this.kernels.malloc(size + ALIGNMENT);
    if (!raw)
      throw new EdgeformerError("engine", `There is not enough memory for ${size} bytes; translate less at once.`);
    const address = ((raw + ALIGNMENT - 1) & -ALIGNMENT) >>> 0;
    this.#buffers.set(name, { raw, address, size });
    return address;
  }

  /** Writes whole numbers as 64 bits each. */
  wholes(name: string, numbers: ArrayLike<number>): number {
    return this.#write(name, BigInt64Array.from(Array.from(numbers, BigInt)));
  }

  doubles(name: string, numbers: ArrayLike<number>): number {
    return this.#write(name, Float64Array.from(numbers));
  }

  bytes(name: string, content: Uint8Array): number {
    return this.#write(name, content);
  }

  #write(name: string, { buffer, byteOffset, byteLength }: BigInt64Array | Float64Array | Uint8Array): number {
    const address = this.reserve(name, byteLength);
    new Uint8Array(this.kernels.memory.buffer, address).set(new Uint8Array(buffer, byteOffset, byteLength));
    return address;
  }

  /** Frees all buffers. */
  free(): void {
    for (const { raw } of this.#buffers.values()) this.kernels.free(raw);
    this.#buffers.clear();
  }
}
