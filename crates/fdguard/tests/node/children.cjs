// Each line with a mark asks for as many descriptors as the mark says, which stay open.
const { spawn, exec, fork, execFile } = require('child_process');
const fs = require('fs');
for (let i = 0; i < 3; i++) {
  spawn('sleep', ['3']); // ASK spawn 9
  spawn('sleep', ['3'], { stdio: ['ignore', 'pipe', 'inherit'] }); // ASK one pipe 3
}
exec('sleep 3'); // ASK exec 3
execFile('sleep', ['3'], () => {}); // ASK execFile 3
const out = fs.openSync('/dev/null', 'w'); // ASK out 1
spawn('sleep', ['3'], { stdio: ['pipe', out, out] }); // ASK given 1
fork('-e', ['process.on("disconnect", () => process.exit())']); // ASK fork 1
setInterval(() => {}, 1000);
