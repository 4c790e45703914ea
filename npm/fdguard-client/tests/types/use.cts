import client = require("fdguard-client");

export async function run(code: string): Promise<string> {
  const host = await client.Host.open();
  return (await (await host.session()).run(code)).stdout.text;
}
