// An express server that leaks one file per request. Ends as Node does at SIGINT.
const fs = require('fs');
const app = require('express')();
const held = [];
app.get('/', (request, response) => {
  held.push(fs.openSync('/etc/passwd')); // LEAK
  response.send(`HELD ${held.length}`);
});
const server = app.listen(0, '127.0.0.1', () => console.log('READY', server.address().port));
