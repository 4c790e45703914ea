// Tells the injected library which JavaScript asked for a descriptor.
//
// Node opens many things later than it is asked to, on a thread of libuv or from a callback of its own. So the stack is taken
// where the program asks, and told once the number is known. To tell is to ask whether a file with a certain name exists;
// without the library that is all that happens. No descriptor, timer or listener is left behind.
//
// In a program that already ran, it takes itself out again as soon as the library no longer answers.
'use strict';

// Written for every Node that would load it, so that those which it does not know run undisturbed.
(() => {
  if (!(parseInt(process.versions.node, 10) >= 18)) return;
  const fs = require('fs');
  const { existsSync } = fs;
  const CALL = '/\u0001fdguard/node/';
  const DEPTH = 48;
  const MOST = 16384;
  const PLACES = 4096;
  // As a module it was loaded at the start of the program.
  const isLate = typeof module === 'undefined';
  const AGENT = Symbol.for('fdguard.agent');
  if (isLate) {
    // Another one may be here since an earlier attach.
    if (typeof process[AGENT] === 'function') process[AGENT]();
    if (!existsSync(CALL + 'here')) return;
  }

  // Of objects (sockets, servers, streams, handles): the stack of who asked for them.
  const asked = new WeakMap();
  // The stack of who asked for what is being done now, when Node does it later.
  let asking;

  const takeSites = (error, sites) => sites;

  // The frames as the library takes them; with a mark whether the program's own are among them.
  function here() {
    const stack = { text: '', isOwn: false };
    const limit = Error.stackTraceLimit;
    const prepare = Error.prepareStackTrace;
    const hadLimit = hasOwn.call(Error, 'stackTraceLimit');
    const hadPrepare = hasOwn.call(Error, 'prepareStackTrace');
    try {
      Error.stackTraceLimit = DEPTH;
      Error.prepareStackTrace = takeSites;
      const holder = {};
      Error.captureStackTrace(holder, here);
      const sites = holder.stack;
      if (Array.isArray(sites)) for (const site of sites) append(stack, site);
    } catch (_) {
      // Frozen by the program.
    }
    quietly(() => {
      if (hadPrepare) Error.prepareStackTrace = prepare;
      else delete Error.prepareStackTrace;
    });
    quietly(() => {
      if (hadLimit) Error.stackTraceLimit = limit;
      else delete Error.stackTraceLimit;
    });
    return stack;
  }

  const hasOwn = Object.prototype.hasOwnProperty;
  // Of places in scripts, by script and position: their frames as text.
  const known = new Map();

  function append(stack, site) {
    const script = site.getFileName() || site.getScriptNameOrSourceURL() || '';
    if (script === __filename || stack.text.length > MOST) return;
    let places = known.get(script);
    if (!places) {
      // A program that makes scripts without end must not be followed without end.
      if (known.size > PLACES) known.clear();
      known.set(script, (places = new Map()));
    }
    // Code without a script's name may be another one each time.
    const position = script === '' ? undefined : site.getPosition();
    let text = places.get(position);
    if (text === undefined || script === '') {
      text = `\n${plain(fileOf(script, site))}\t${site.getLineNumber() || 0}\t${plain(nameOf(site))}`;
      if (places.size > PLACES) places.clear();
      places.set(position, text);
    }
    stack.text += text;
    // Built-in functions (Promise.all, Array.forEach) have no script.
    const isForeign = script === '' ? !site.isEval() : script.startsWith('node:') || script.includes('/node_modules/');
    if (!isForeign) stack.isOwn = true;
  }

  function fileOf(script, site) {
    if (script === '') return site.isEval() ? '<eval>' : 'native';
    if (!script.startsWith('file://')) return script;
    try {
      return decodeURIComponent(script.slice(7));
    } catch (_) {
      return script.slice(7);
    }
  }

  function nameOf(site) {
    const name = site.getFunctionName();
    if (site.isConstructor()) return `new ${name || '<anonymous>'}`;
    const method = name || site.getMethodName();
    if (!method) return '<anonymous>';
    const type = site.isToplevel() || site.isAsync() ? null : site.getTypeName();
    return type && !method.includes('.') && type !== 'Object' ? `${type}.${method}` : method;
  }

  const plain = (text) => (/[\0-\x1f]/.test(text) ? text.replace(/[\0-\x1f]/g, '?') : text);

  // The stack to tell of: this one, or without own frames that of who asked for it before.
  function requester(...objects) {
    if (isOver) return undefined;
    const stack = here();
    if (stack.isOwn) return stack;
    for (const object of objects) {
      const before = object && asked.get(object);
      if (before) return before;
    }
    return asking || stack;
  }

  function tell(whom, stack) {
    if (stack && stack.text !== '' && (typeof whom === 'string' || whom >= 0)) {
      if (!existsSync(CALL + whom + stack.text) && isLate) undo();
    }
  }

  // Nothing of ours may be seen by the program, least of all a failure.
  function quietly(work) {
    try {
      return work();
    } catch (_) {
      return undefined;
    }
  }

  // What was patched, and how to restore it.
  const patches = [];
  let isOver = false;

  // Whoever kept a patched function keeps one that passes calls on.
  function undo() {
    if (isOver) return;
    isOver = true;
    for (const { object, name, before, patched } of patches.splice(0).reverse()) {
      quietly(() => {
        if (object[name] === patched) Object.defineProperty(object, name, before);
      });
    }
    known.clear();
    quietly(() => require('module').syncBuiltinESMExports());
    quietly(() => {
      if (process[AGENT] === undo) delete process[AGENT];
    });
  }

  function patch(object, name, make) {
    quietly(() => {
      const before = Object.getOwnPropertyDescriptor(object, name);
      const original = object[name];
      if (!before || typeof original !== 'function') return;
      const patched = make(original);
      for (const key of Reflect.ownKeys(original)) {
        if (key === 'prototype' && typeof patched === 'function' && !('prototype' in patched)) continue;
        quietly(() => Object.defineProperty(patched, key, Object.getOwnPropertyDescriptor(original, key)));
      }
      const { enumerable, configurable } = before;
      Object.defineProperty(object, name, { value: patched, writable: true, enumerable, configurable });
      if (isLate) patches.push({ object, name, before, patched });
    });
  }

  // Remembers who called, for the object that comes of it.
  function rememberResult(object, name) {
    patch(object, name, (original) => function (...args) {
      const stack = quietly(() => requester());
      const result = Reflect.apply(original, this, args);
      quietly(() => asked.set(result, stack));
      return result;
    });
  }

  function rememberThis(object, name) {
    patch(object, name, (original) => function (...args) {
      quietly(() => {
        const stack = requester(this);
        if (stack && (stack.isOwn || !asked.has(this))) asked.set(this, stack);
      });
      return Reflect.apply(original, this, args);
    });
  }

  function files() {
    const whom = (result) => {
      // Directories do not show their number.
      if (typeof result === 'number') return result;
      return result && typeof result.fd === 'number' ? result.fd : 'opendir';
    };
    for (const name of ['openSync', 'opendirSync']) {
      patch(fs, name, (original) => function (...args) {
        const result = insidePublic(original, this, args);
        quietly(() => tell(whom(result), requester()));
        return result;
      });
    }
    for (const name of ['open', 'opendir']) {
      patch(fs, name, (original) => function (...args) {
        const last = args.length - 1;
        const callback = args[last];
        if (typeof callback === 'function') {
          const stack = quietly(() => requester());
          args[last] = function (error, result) {
            if (!error) quietly(() => tell(whom(result), stack));
            return Reflect.apply(callback, this, arguments);
          };
        }
        return insidePublic(original, this, args);
      });
      patch(fs.promises, name, (original) => function (...args) {
        const stack = quietly(() => requester());
        const promise = insidePublic(original, this, args);
        return promise.then((result) => {
          quietly(() => tell(whom(result), stack));
          return result;
        });
      });
    }
    // Closes happen later or on another thread, too.
    for (const name of ['closeSync', 'close']) {
      patch(fs, name, (original) => function (...args) {
        if (typeof args[0] === 'number') quietly(() => tell(`closing ${args[0]}`, requester()));
        return Reflect.apply(original, this, args);
      });
    }
    // A stream opens its file in the next tick.
    rememberResult(fs, 'createReadStream');
    rememberResult(fs, 'createWriteStream');
    for (const name of ['ReadStream', 'WriteStream']) {
      const stream = fs[name];
      patch(fs, name, (original) => new Proxy(original, {
        construct(target, args, subclass) {
          const stack = quietly(() => requester());
          const result = Reflect.construct(target, args, subclass);
          quietly(() => asked.set(result, stack));
          return result;
        },
      }));
      patch(stream.prototype, '_construct', (original) => function (...args) {
        asking = asked.get(this);
        try {
          return Reflect.apply(original, this, args);
        } finally {
          asking = undefined;
        }
      });
    }
  }

  // Whether a public function that is patched is at work, which tells by itself.
  let isInside = false;

  function insidePublic(original, self, args) {
    const before = isInside;
    isInside = true;
    try {
      return Reflect.apply(original, self, args);
    } finally {
      isInside = before;
    }
  }

  // A program may have kept `openSync` and the like before there was an agent. They all end here.
  function keptFunctions() {
    const fsBinding = binding('fs');
    patch(fsBinding, 'open', (original) => function (...args) {
      if (isInside || isOver) return Reflect.apply(original, this, args);
      const stack = quietly(() => requester());
      const request = args[3];
      quietly(() => {
        const { oncomplete } = request || {};
        if (typeof oncomplete !== 'function') return;
        request.oncomplete = function (error, fd) {
          if (!error) quietly(() => tell(fd, stack));
          return Reflect.apply(oncomplete, this, arguments);
        };
      });
      const result = Reflect.apply(original, this, args);
      if (typeof result === 'number') quietly(() => tell(result, stack));
      return result;
    });
    patch(fsBinding, 'openFileHandle', (original) => function (...args) {
      const result = Reflect.apply(original, this, args);
      if (isInside || isOver || !result || typeof result.then !== 'function') return result;
      const stack = quietly(() => requester());
      return result.then((handle) => {
        quietly(() => tell(handle.fd, stack));
        return handle;
      });
    });
  }

  // Node's own socket, server or process of a handle.
  function ownerOf(handle) {
    const symbol = Object.getOwnPropertySymbols(handle).find((one) => one.description === 'owner_symbol');
    return symbol && handle[symbol];
  }

  function prototype(name, type) {
    const found = binding(name)[type];
    return found ? found.prototype : {};
  }

  function binding(name) {
    const before = Object.getOwnPropertyDescriptor(process, 'noDeprecation');
    try {
      process.noDeprecation = true;
      return process.binding(name);
    } catch (_) {
      return {};
    } finally {
      if (before) Object.defineProperty(process, 'noDeprecation', before);
      else delete process.noDeprecation;
    }
  }

  // Those that got their number from a call of ours, and those whose number was told.
  const made = new WeakSet();
  const told = new WeakSet();

  // After these calls of a handle it has its number.
  function handles() {
    const calls = [
      [prototype('tcp_wrap', 'TCP'), ['bind', 'bind6', 'connect', 'connect6', 'listen']],
      [prototype('pipe_wrap', 'Pipe'), ['bind', 'connect', 'listen']],
      [prototype('udp_wrap', 'UDP'), ['bind', 'bind6', 'connect', 'connect6', 'send', 'send6']],
    ];
    for (const [type, names] of calls) {
      for (const name of names) {
        patch(type, name, (original) => function (...args) {
          // A number that it has already was given to it, and is somebody else's.
          const before = name === 'listen' ? -1 : this.fd;
          if (name === 'listen') quietly(() => accept(this));
          const result = Reflect.apply(original, this, args);
          if (before < 0) quietly(() => tellHandle(this, name));
          return result;
        });
      }
    }
    patch(prototype('process_wrap', 'Process'), 'spawn', (original) => function (options, ...rest) {
      const stack = quietly(() => requester());
      quietly(() => tell('starting', stack));
      const result = Reflect.apply(original, this, [options, ...rest]);
      quietly(() => {
        const pipes = (options.stdio || []).filter((one) => one && (one.type === 'pipe' || one.type === 'overlapped'));
        for (const { handle } of pipes) if (handle) tell(handle.fd, stack);
      });
      return result;
    });
    // All watchers of a loop share one descriptor, which stays.
    let hasWatched = false;
    patch(prototype('fs_event_wrap', 'FSEvent'), 'start', (original) => function (...args) {
      const result = Reflect.apply(original, this, args);
      if (!hasWatched && result === 0) {
        hasWatched = true;
        quietly(() => tell('inotify', requester()));
      }
      return result;
    });
  }

  // A server's socket is made before the server is known by it: then its listening tells more.
  function tellHandle(handle, call) {
    if (call !== 'listen') made.add(handle);
    if (!made.has(handle) || told.has(handle) || handle.fd < 0) return;
    const stack = requester(ownerOf(handle), handle);
    if (stack.isOwn) told.add(handle);
    tell(handle.fd, stack);
  }

  // What a server accepts was asked for by who made it listen.
  function accept(handle) {
    const { onconnection } = handle;
    if (typeof onconnection !== 'function') return;
    const stack = requester(ownerOf(handle), handle);
    handle.onconnection = function (error, client) {
      if (client) quietly(() => tell(client.fd, stack));
      return Reflect.apply(onconnection, this, arguments);
    };
  }

  function sockets() {
    const net = require('net');
    rememberThis(net.Socket.prototype, 'connect');
    rememberThis(net.Server.prototype, 'listen');
    rememberResult(require('dgram'), 'createSocket');
  }

  function workers() {
    const threads = require('worker_threads');
    const KEY = 'fdguard:asked';
    if (!threads.isMainThread) {
      quietly(() => tell('thread', { text: threads.getEnvironmentData(KEY) || '' }));
    }
    patch(threads, 'Worker', (original) => new Proxy(original, {
      construct(target, args, subclass) {
        const before = quietly(() => threads.getEnvironmentData(KEY));
        quietly(() => threads.setEnvironmentData(KEY, requester().text));
        try {
          return Reflect.construct(target, args, subclass);
        } finally {
          quietly(() => threads.setEnvironmentData(KEY, before));
        }
      },
    }));
  }

  for (const part of [files, handles, sockets, workers]) quietly(part);
  if (isLate) quietly(keptFunctions);
  quietly(() => require('module').syncBuiltinESMExports());
  if (isLate) Object.defineProperty(process, AGENT, { value: undo, configurable: true });
})();
