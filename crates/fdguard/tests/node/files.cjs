// Each line with a mark asks for as many descriptors as the mark says, which stay open.
const fs = require('fs');
const promises = require('fs').promises;
const { open } = require('node:fs/promises');
const keep = (globalThis.keep = []);
for (let i = 0; i < 3; i++) {
  fs.openSync(__filename); // ASK openSync 3
  fs.open(__filename, () => {}); // ASK open 3
  keep.push(fs.createReadStream('/dev/zero')); // ASK stream 3
  keep.push(fs.createWriteStream('/dev/null')); // ASK writing 3
  keep.push(new fs.ReadStream('/dev/zero')); // ASK class 3
  keep.push(fs.opendirSync('/')); // ASK opendirSync 3
  fs.opendir('/', (error, folder) => keep.push(folder)); // ASK opendir 3
  keep.push(fs.watch('/', () => {})); // ASK watch 1
  fs.closeSync(fs.openSync(__filename)); // ASK closed 0
  fs.readFileSync(__filename);
  fs.readFile(__filename, () => {});
}
(async () => {
  for (let i = 0; i < 3; i++) {
    keep.push(await fs.promises.open(__filename)); // ASK promised 3
    keep.push(await promises.open(__filename)); // ASK required 3
    keep.push(await open(__filename)); // ASK module 3
    keep.push(await promises.opendir('/')); // ASK promised folder 3
    await promises.readFile(__filename);
    await (await open(__filename)).close();
  }
  const handle = await open('/dev/zero'); // ASK handle stream 1
  keep.push(handle, handle.createReadStream());
})();
const util = require('util');
util.promisify(fs.open)(__filename).then((fd) => keep.push(fd)); // ASK promisified 1
setTimeout(function later() {
  fs.openSync(__filename); // ASK later 1
}, 100);
setInterval(() => {}, 1000);
