# A log backend in Elixir opens a file per job in its own process. Removing a job
# forgets the file instead of closing it, and the device stays with the backend,
# which lives as long as the system. Jobs that are closed properly show the difference.
defmodule LogBackend do
  use GenServer

  def start_link(dir), do: GenServer.start_link(__MODULE__, dir, name: __MODULE__)
  def log(job, text), do: GenServer.call(__MODULE__, {:log, job, text})
  def remove(job), do: GenServer.call(__MODULE__, {:remove, job})
  def close(job), do: GenServer.call(__MODULE__, {:close, job})

  def init(dir), do: {:ok, {dir, %{}}}

  def handle_call({:log, job, text}, _from, {dir, files}) do
    files = Map.put_new_lazy(files, job, fn -> open(dir, job) end)
    IO.puts(files[job], text)
    {:reply, :ok, {dir, files}}
  end

  def handle_call({:remove, job}, _from, {dir, files}) do
    {:reply, :ok, {dir, Map.delete(files, job)}}
  end

  def handle_call({:close, job}, _from, {dir, files}) do
    {file, files} = Map.pop(files, job)
    {:reply, File.close(file), {dir, files}}
  end

  defp open(dir, job) do
    File.open!(Path.join(dir, "job-#{rem(job, 7)}.log"), [:append])
  end
end

defmodule Main do
  def env(name, default) do
    case System.get_env(name) do
      nil -> default * 1.0
      text -> text |> Float.parse() |> elem(0)
    end
  end

  def now, do: System.monotonic_time(:millisecond) / 1000

  def good_job(job) do
    LogBackend.log(job, "started")
    Process.sleep(15)
    LogBackend.close(job)
  end

  def forgotten_job(job) do
    LogBackend.log(job, "started")
    LogBackend.remove(job)
  end

  def good_until(time, job) do
    if now() < time do
      good_job(job)
      good_until(time, job + 1)
    else
      job
    end
  end

  def run(n, total, _rate, _begin, _job) when n >= total, do: n

  def run(n, total, rate, begin, job) do
    forgotten_job(job)
    job = good_until(begin + (n + 1) / rate, job + 1)
    run(n + 1, total, rate, begin, job)
  end
end

IO.puts("READY #{System.pid()}")
{:ok, _} = LogBackend.start_link(System.fetch_env!("LB_WORK"))
job = Main.good_until(Main.now() + 1.0, 0)
IO.puts("PHASE run")
seconds = Main.env("LB_SECONDS", 20)
rate = Main.env("LB_RATE", 4)
n = Main.run(0, rate * seconds, rate, Main.now(), job)
IO.puts("DONE leaked=#{n}")
Process.sleep(1500)
System.halt(0)
