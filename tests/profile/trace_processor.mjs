// Runs SQL over a trace in Perfetto's trace processor, the program behind ui.perfetto.dev.
//   node trace_processor.mjs trace_processor.wasm TRACE <QUERIES >RESULTS
// QUERIES is a JSON list of SQL texts. RESULTS is a JSON list with, for each, its rows: objects by column.
//
// The trace processor is WebAssembly that Emscripten compiled. It reads requests from a buffer of its own, and calls
// back with replies before the call returns. Both are streams of the protobuf message TraceProcessorRpcStream
// (protos/perfetto/trace_processor/trace_processor.proto in Perfetto's sources); the numbers of fields below are
// from there.
import { readFileSync, writeSync } from 'node:fs';

const [wasmPath, tracePath] = process.argv.slice(2);

// ---- Protobuf: a field is (number << 3 | wire type), then a varint, 8 bytes, or a length and that many bytes.

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
  return Buffer.from([...bytes, number]);
}
const numberField = (field, number) => Buffer.concat([varint(field * 8), varint(number)]);
const bytesField = (field, bytes) => Buffer.concat([varint(field * 8 + 2), varint(bytes.length), bytes]);

function readVarint(bytes, at) {
  let number = 0n, shift = 0n, byte;
  do {
    byte = bytes[at++];
    number |= BigInt(byte & 127) << shift;
    shift += 7n;
  } while (byte > 127);
  return [number, at];
}

/// Calls on(field, value) for each field: value is a BigInt, or the bytes.
function readFields(bytes, on) {
  let at = 0, key, value;
  while (at < bytes.length) {
    [key, at] = readVarint(bytes, at);
    const wire = Number(key & 7n);
    if (wire === 0) {
      [value, at] = readVarint(bytes, at);
    } else if (wire === 1 || wire === 2) {
      let length = 8n;
      if (wire === 2) [length, at] = readVarint(bytes, at);
      value = bytes.subarray(at, at += Number(length));
    } else {
      throw new Error(`unknown wire type ${wire}`);
    }
    on(Number(key >> 3n), value);
  }
}

// ---- The program and the little of an operating system that it needs: clocks, memory, and a place for complaints.

const kNoSuchCall = -52, kNoSuchFile = -44;  // Emscripten's -ENOSYS and -ENOENT
let program;
const memory = () => Buffer.from(program.memory.buffer);  // anew each time: the buffer moves when it grows
const textAt = (at) => memory().toString('utf8', at, memory().indexOf(0, at));
const complain = (text) => writeSync(2, text);

const system = {
  emscripten_date_now: () => Date.now(),
  emscripten_get_now: () => performance.now(),
  emscripten_get_heap_max: () => 2 ** 32 - 65536,
  emscripten_resize_heap(bytes) {
    const lacking = (bytes >>> 0) - program.memory.buffer.byteLength;
    try {
      program.memory.grow(Math.ceil(lacking / 65536));
    } catch {
      return 0;
    }
    return 1;
  },
  emscripten_err: (text) => complain(textAt(text >>> 0) + '\n'),
  __assert_fail(what, file, line) {
    throw new Error(`${textAt(file >>> 0)}:${line}: ${textAt(what >>> 0)}`);
  },
  _abort_js() {
    throw new Error('the trace processor gave up');
  },
  _tzset_js() {},
  __syscall_openat: () => kNoSuchFile,
  clock_time_get(clock, precision, result) {
    memory().writeBigInt64LE(BigInt(Math.round((clock === 0 ? Date.now() : performance.now()) * 1e6)), result >>> 0);
    return 0;
  },
  environ_sizes_get(count, bytes) {
    memory().writeUInt32LE(0, count >>> 0);
    memory().writeUInt32LE(0, bytes >>> 0);
    return 0;
  },
  environ_get: () => 0,
  fd_write(file, pieces, count, written) {
    let total = 0;
    for (let i = 0; i < count; ++i) {
      const at = (pieces >>> 0) + 8 * i, start = memory().readUInt32LE(at), length = memory().readUInt32LE(at + 4);
      complain(memory().subarray(start, start + length));
      total += length;
    }
    memory().writeUInt32LE(total, written >>> 0);
    return 0;
  },
};

/// A JavaScript function of two 32-bit integers as one that WebAssembly can call through its table: a module that
/// imports the function and exports it again.
function asWasmFunction(call) {
  const module = Buffer.concat([
    Buffer.from('\0asm\x01\0\0\0'),
    Buffer.from([1, 6, 1, 0x60, 2, 0x7f, 0x7f, 0]),        // one type: (i32, i32) -> nothing
    Buffer.from([2, 7, 1, 1, 0x65, 1, 0x66, 0, 0]),        // import "e" "f" of that type
    Buffer.from([7, 5, 1, 1, 0x66, 0, 0]),                 // export it as "f"
  ]);
  return new WebAssembly.Instance(new WebAssembly.Module(module), { e: { f: call } }).exports.f;
}

const kBufferBytes = 32 << 20;
let requestBuffer;
let onReply;  // receives the fields of each TraceProcessorRpc

function start() {
  const module = new WebAssembly.Module(readFileSync(wasmPath));
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module))
    (imports[from] ??= {})[name] = system[name] ?? (() => kNoSuchCall);
  program = new WebAssembly.Instance(module, imports).exports;
  program.emscripten_stack_init();
  program.__wasm_call_ctors();
  program.__main_argc_argv(0, 0);
  const reply = asWasmFunction((at, bytes) => {
    const stream = Buffer.from(memory().subarray(at >>> 0, (at >>> 0) + bytes));
    readFields(stream, (field, rpc) => readFields(rpc, (inner, value) => {
      if (inner === 5) throw new Error(`the trace processor failed: ${value}`);  // fatal_error
      onReply(inner, value);
    }));
  });
  const table = program.__indirect_function_table, place = table.grow(1);
  table.set(place, reply);
  requestBuffer = program.trace_processor_rpc_init(place, kBufferBytes) >>> 0;
}

let requests = 0;
/// Sends a TraceProcessorRpc: seq, request, and a field of arguments. reply(field, value) is called with what returns.
function request(method, args, reply) {
  onReply = reply;
  const rpc = Buffer.concat([numberField(1, ++requests), numberField(2, method), args]);
  const stream = bytesField(1, rpc);
  for (let at = 0; at < stream.length; at += kBufferBytes) {
    const piece = stream.subarray(at, at + kBufferBytes);
    piece.copy(memory(), requestBuffer);
    program.trace_processor_on_rpc_request(piece.length);
  }
}

// ---- What is asked.

/// Fails if the result at this field of the reply has an error.
function refuseError(resultField, errorField) {
  return (field, result) => {
    if (field !== resultField) return;
    readFields(result, (inner, text) => {
      if (inner === errorField && text.length > 0) throw new Error(`the trace cannot be read: ${text}`);
    });
  };
}

function load(trace) {
  const kPiece = 16 << 20;
  for (let at = 0; at < trace.length; at += kPiece)  // TPM_APPEND_TRACE_DATA
    request(1, bytesField(101, trace.subarray(at, at + kPiece)), refuseError(201, 2));
  request(2, Buffer.alloc(0), refuseError(212, 1));  // TPM_FINALIZE_TRACE_DATA
}

/// The cells of a CellsBatch, in order: null, number or string.
function readCells(batch) {
  const kinds = [], integers = [], floats = [];
  let strings = [], hasBytes = false;
  readFields(batch, (field, value) => {
    const eachVarint = (on) => {
      for (let at = 0, number; at < value.length;) {
        [number, at] = readVarint(value, at);
        on(number);
      }
    };
    if (field === 1) eachVarint((kind) => kinds.push(Number(kind)));
    if (field === 2) eachVarint((number) => integers.push(BigInt.asIntN(64, number)));
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (field === 4) hasBytes = true;
    if (field === 5) strings = value.toString('utf8').split('\0');
  });
  if (hasBytes) throw new Error('cells of bytes are not read here');
  let integer = 0, float = 0, string = 0;
  return kinds.map((kind) => {
    if (kind === 1) return null;
    if (kind === 3) return floats[float++];
    if (kind === 4) return strings[string++];
    const number = Number(integers[integer++]);
    if (kind !== 2 || !Number.isSafeInteger(number)) throw new Error(`a cell of kind ${kind} is not read: ${number}`);
    return number;
  });
}

function query(sql) {
  const columns = [], cells = [];
  request(3, bytesField(103, bytesField(1, Buffer.from(sql))), (field, result) => {  // TPM_QUERY_STREAMING
    if (field !== 203) return;
    readFields(result, (inner, value) => {
      if (inner === 1) columns.push(value.toString());
      if (inner === 2 && value.length > 0) throw new Error(`${value}\nin: ${sql}`);
      if (inner === 3) for (const cell of readCells(value)) cells.push(cell);
    });
  });
  const rows = [];
  for (let at = 0; at < cells.length; at += columns.length)
    rows.push(Object.fromEntries(columns.map((column, i) => [column, cells[at + i]])));
  return rows;
}

start();
load(readFileSync(tracePath));
const results = JSON.parse(readFileSync(0, 'utf8')).map(query);
process.stdout.write(JSON.stringify(results));
