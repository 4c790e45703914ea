// Opens one file per PERIOD (ms) for DURATION (ms), then closes all in one sweep and ends a second later.
const fs = require('fs');
const [period, duration] = process.argv.slice(2).map(Number);
const held = [];
function work() {
  held.push(fs.openSync('/etc/passwd')); // LEAK
}
console.log('READY', process.pid);
const begin = Date.now();
const timer = setInterval(() => {
  work();
  if (Date.now() - begin < duration) return;
  clearInterval(timer);
  console.log('HELD', held.length);
  for (const fd of held) fs.closeSync(fd);
  setTimeout(() => {}, 1000);
}, period);
