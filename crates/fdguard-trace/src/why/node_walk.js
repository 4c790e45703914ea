// Asks for a copy of the program, and is the only code that runs in the copy: it names what owns or
// has the numbers of open descriptors, and writes a heap snapshot. Evaluated by the inspector.
((get) => {
  const NUMBERS = [/*NUMBERS*/];
  const LIMIT = /*LIMIT*/;
  const CALL = '/\u0001fdguard/node/';
  const began = process.hrtime();
  const fs = get('fs');
  const heap = process.memoryUsage().heapUsed;
  if (heap > LIMIT) return `large ${heap}`;
  // Before the copy: in it a thread of the inspector may be missing that keeps a lock.
  const { Session } = get('inspector');
  const session = new Session();
  session.connect();
  if (!fs.existsSync(`${CALL}copy`)) {
    const took = process.hrtime(began);
    session.disconnect();
    let pid = 0;
    for (let bit = 0; bit < 31; bit += 1) if (fs.existsSync(`${CALL}copied ${bit}`)) pid += 2 ** bit;
    return `copied ${pid} ${took[0] * 1e9 + took[1]} ${heap}`;
  }

  // From here on in the copy. The program's descriptors are not open here, and nobody else runs.
  /*FAULT*/
  const { types } = get('util');
  let text = '';
  const flush = () => {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length;) at += fs.writeSync(1, bytes, at);
    text = '';
  };
  const write = (...parts) => {
    text += `${parts.join('\t')}\n`;
    if (text.length > 65536) flush();
  };
  const plain = (key) => key.replace(/[\0-\x1f=]/g, '?').slice(0, 80) || '?';
  const post = (method, params) => {
    let result;
    session.post(method, params, (error, answer) => {
      if (error) throw new Error(error.message);
      result = answer;
    });
    return result;
  };
  const { isPrototypeOf } = Object.prototype;
  const own = Object.getOwnPropertyDescriptor;
  const open = new Set(NUMBERS);
  class FdguardMarks {}
  const marks = new FdguardMarks();
  const ours = new Set([marks, open, NUMBERS]);
  let count = 0;
  const mark = (object) => {
    count += 1;
    marks[`m${count}`] = object;
    return `m${count}`;
  };
  const hidden = (object, name) => {
    for (const symbol of Object.getOwnPropertySymbols(object)) {
      if (symbol.description === name) return (own(object, symbol) || {}).value;
    }
    return undefined;
  };
  const natives = [];
  process.noDeprecation = true;
  for (const [module, type] of [['tcp_wrap', 'TCP'], ['pipe_wrap', 'Pipe'], ['udp_wrap', 'UDP'], ['tty_wrap', 'TTY']]) {
    try {
      natives.push([type, process.binding(module)[type].prototype]);
    } catch (_) {
      // This Node has no such handles.
    }
  }
  const mapSize = own(Map.prototype, 'size').get;
  const mapEntries = Map.prototype.entries;
  const setSize = own(Set.prototype, 'size').get;
  const setValues = Set.prototype.values;
  const streams = [fs.ReadStream.prototype, fs.WriteStream.prototype];

  // The objects that own a descriptor. Getters of the program are not called.
  const owner = (one) => {
    for (const [type, prototype] of natives) {
      if (one === prototype || !isPrototypeOf.call(prototype, one)) continue;
      // V8 keeps a pattern of each class, without a handle behind it; to ask it would crash.
      if (hidden(one, 'owner_symbol') && open.has(one.fd)) write('O', mark(one), one.fd, type);
      return true;
    }
    const handle = hidden(one, 'kHandle');
    const fd = hidden(one, 'kFd');
    if (handle && open.has(fd)) {
      write('O', mark(handle), fd, 'FileHandle');
      return true;
    }
    const number = (own(one, 'fd') || {}).value;
    for (const prototype of streams) {
      if (open.has(number) && isPrototypeOf.call(prototype, one)) {
        write('O', mark(one), number, prototype === streams[0] ? 'ReadStream' : 'WriteStream');
        return true;
      }
    }
    return false;
  };

  // Containers with their sizes, and everything that has the number of a descriptor.
  const place = (one) => {
    if (one === ours) return;
    let size;
    let all = 0;
    const numbers = [];
    const see = (value, key) => {
      if (typeof value !== 'number') return;
      all += 1;
      if (open.has(value)) numbers.push(`${value}=${key}`);
    };
    if (Array.isArray(one)) {
      size = one.length;
      for (let at = 0; at < size && at < 65536; at += 1) see((own(one, at) || {}).value, '');
    } else if (types.isMap(one)) {
      size = Reflect.apply(mapSize, one, []);
      for (const [, value] of Reflect.apply(mapEntries, one, [])) see(value, '');
    } else if (types.isSet(one)) {
      size = Reflect.apply(setSize, one, []);
      for (const value of Reflect.apply(setValues, one, [])) see(value, '');
    } else {
      for (const key of Reflect.ownKeys(one)) {
        see((own(one, key) || {}).value, plain(typeof key === 'symbol' ? key.description || '' : key));
      }
    }
    if (numbers.length > 0 || size > 0) write('P', mark(one), size === undefined ? '-' : size, all, ...numbers);
  };

  const LOOK = Symbol.for('fdguard.look');
  try {
    process[LOOK] = (all) => {
      for (let at = 0; at < all.length; at += 1) {
        const one = all[at];
        if (typeof one !== 'object' || types.isProxy(one) || types.isTypedArray(one) || ours.has(one)) continue;
        if (!owner(one)) place(one);
      }
    };
    const root = post('Runtime.evaluate', { expression: 'Object.prototype' });
    const found = post('Runtime.queryObjects', { prototypeObjectId: root.result.objectId, objectGroup: 'fdguard' });
    const looked = post('Runtime.callFunctionOn', {
      objectId: found.objects.objectId,
      functionDeclaration: "function () { process[Symbol.for('fdguard.look')](this); }",
    });
    if (looked.exceptionDetails) throw new Error(looked.exceptionDetails.exception.description);
    post('Runtime.releaseObjectGroup', { objectGroup: 'fdguard' });
    delete process[LOOK];
    process[Symbol.for('fdguard.marks')] = marks;
    // To find all objects, garbage was collected. What Node closed thereby, nothing held: its number
    // is free now, or something else than the null device has it.
    const { rdev } = fs.statSync('/dev/null');
    const collected = NUMBERS.filter((fd) => {
      try {
        return fd > 2 && fs.fstatSync(fd).rdev !== rdev;
      } catch (_) {
        return true;
      }
    });
    write(`C\t${collected.join(' ')}`);
    write('S');
    flush();
    get('v8').writeHeapSnapshot('/proc/self/fd/1');
  } catch (error) {
    write('E', plain(String((error && error.message) || error)));
    flush();
  }
  fs.closeSync(1);
  // Until it is ended.
  for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
})(process.getBuiltinModule || require)
