"""The demonstration of the README, recorded: runs the commands for real and draws docs/demo.svg.

    python examples/demo/record.py [SVG]

Needs `kafkalike` and `kcat` on the PATH, and ports 9092 to 9094 and 8099.  The drawing is plain text
in an animated SVG: no other program makes it, and nothing is typed into it by hand.
"""

import html
import os
import pathlib
import subprocess
import sys
import time

TITLE = "kafkalike"
COLUMNS, FONT_SIZE, CHAR_WIDTH, LINE_HEIGHT, MARGIN = 100, 14, 8.43, 20, 16
TYPING_S, READING_S, END_S = 0.02, 0.8, 6.0

SCRIPT = """
# three brokers, replicated, on this machine
kafkalike up --brokers 3 --memory --control-port 8099 &
# a client that goes on when a record is safe on two brokers, and never writes it twice
curl -s localhost:8099/create_topic -d '{"topic": "orders"}'
orders() { for i in {1..2000}; do echo order $i; sleep 0.001; done; }
orders | kcat -P -b localhost -t orders -X enable.idempotence=true &
# meanwhile: who leads, and SIGKILL for it
curl -s localhost:8099/leader?topic=orders
curl -s localhost:8099/kill -d '{"broker": %LEADER%, "at_once": true}'
curl -s localhost:8099/wait_leader -d '{"topic": "orders", "other_than": %LEADER%}'
# nothing that was acknowledged is lost, nothing is there twice
wait %PRODUCER%; kcat -C -b localhost:9092,localhost:9093 -t orders -e -q > read.txt
wc -l < read.txt; sort -u read.txt | wc -l; tail -1 read.txt
"""


class Recording:
    """Lines and when they appeared."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, str]] = []
        self.now_s = 0.5

    def show(self, kind: str, text: str) -> None:
        for start in range(0, max(len(text), 1), COLUMNS):
            self.lines.append((self.now_s, kind, text[start : start + COLUMNS]))

    def type(self, kind: str, text: str) -> None:
        self.show(kind, text)
        self.now_s += len(text) * TYPING_S


def record() -> Recording:
    """Run the script in one bash and note what it prints."""
    recording = Recording()
    marker = "@@@done@@@"
    shell = subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=os.environ.get("TMPDIR", "/tmp"),
    )
    assert shell.stdin is not None and shell.stdout is not None
    leader = ""
    for line in SCRIPT.strip().splitlines():
        if line.startswith("#"):
            recording.now_s += 0.3
            recording.type("comment", line)
            continue
        command = line.replace("%LEADER%", leader).replace("%PRODUCER%", "%2")
        recording.type("command", f"$ {command}")
        begin = time.monotonic()
        waits_for = "Ctrl-C" if command.startswith("kafkalike up") else marker
        more = "" if waits_for != marker else f"\necho {marker}"
        shell.stdin.write(command + more + "\n")
        shell.stdin.flush()
        begin_s = recording.now_s
        for text in shell.stdout:
            recording.now_s = begin_s + (time.monotonic() - begin)
            found = text.rstrip("\n")
            if waits_for in found:
                break
            recording.show("output", found)
            if "leader?" in command:
                leader = found.split(":")[1].strip(" }")
        recording.now_s = max(recording.now_s, begin_s + READING_S)
    shell.stdin.write("curl -s localhost:8099/shutdown -d '{}'; rm -f read.txt; wait\n")
    shell.stdin.close()
    shell.wait(60)
    return recording


def draw(recording: Recording) -> str:
    """The recording as an SVG that plays for ever."""
    total_s = recording.now_s + END_S
    width = round(COLUMNS * CHAR_WIDTH + 2 * MARGIN)
    top = 2 * MARGIN + LINE_HEIGHT
    height = top + len(recording.lines) * LINE_HEIGHT + MARGIN
    styles, texts = [], []
    for number, (at_s, kind, text) in enumerate(recording.lines):
        percent = 100 * at_s / total_s
        styles.append(
            f"@keyframes l{number}{{0%{{opacity:0}}{percent:.2f}%{{opacity:1}}100%{{opacity:1}}}}"
        )
        y = top + number * LINE_HEIGHT
        texts.append(
            f'<text class="{kind}" x="{MARGIN}" y="{y}" xml:space="preserve"'
            f' style="animation:l{number} {total_s:.1f}s step-end infinite">{html.escape(text)}</text>'
        )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
 viewBox="0 0 {width} {height}" role="img" aria-label="three brokers, one killed, nothing lost">
<style>
text{{font:{FONT_SIZE}px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9}}
.command{{fill:#ffffff}}.comment{{fill:#7ee787}}.title{{fill:#8b949e;font-size:12px}}
{chr(10).join(styles)}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" fill="#f85149"/><circle cx="38" cy="18" r="5" fill="#d29922"/>
<circle cx="56" cy="18" r="5" fill="#3fb950"/>
<text class="title" x="{width // 2}" y="22" text-anchor="middle">{TITLE}</text>
{chr(10).join(texts)}
</svg>
"""


def main() -> None:
    target = pathlib.Path(__file__).resolve().parents[2] / "docs" / "demo.svg"
    if len(sys.argv) > 1:
        target = pathlib.Path(sys.argv[1])
    recording = record()
    for at_s, _, text in recording.lines:
        print(f"{at_s:6.2f}  {text}")
    numbers = [text for _, kind, text in recording.lines if kind == "output"][-3:]
    assert numbers == ["2000", "2000", "order 2000"], f"not what was to be shown: {numbers}"
    target.write_text(draw(recording))
    print(f"written: {target}")


if __name__ == "__main__":
    main()
