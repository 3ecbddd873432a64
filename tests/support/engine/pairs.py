"""The trained pairs that the engine is proved on, and the prompts they answer."""

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

FIXTURES = Path(__file__).parents[3] / "fixtures"

SUBJECTS = (
    "Describe argparse.ArgumentParser",
    "Describe collections.OrderedDict",
    "Describe email.message.Message.get_payload",
    "Describe http.client.HTTPConnection",
    "Describe logging.Logger.setLevel",
    "Describe pathlib.Path.rename",
    "Describe random.Random.shuffle",
    "Describe socket.create_server",
    "Describe threading.Condition.wait_for",
    "Describe unittest.TestCase.assertRaises",
    "Describe zipfile.ZipFile.extractall",
    "Continue: Return the number of items that are in the queue right now.",
    "Continue: The event loop keeps a reference to the task until it is done, so that it cannot be collected early.",
    "Continue: This method is called when a connection is made. The argument is the transport that stands for it.",
    "Implement Counter.most_common(self, n=None): List the n most common elements and their counts",
    "Implement Fraction.__add__(a, b): a + b",
    "Implement Queue.get_nowait(self): Remove and return an item from the queue without blocking",
    "Implement StringIO.readline(self, size): Read one line, up to and with the newline",
    "Implement Thread.join(self, timeout=None): Wait until the thread terminates",
    "Implement copytree(src, dst, symlinks=False): Copy a whole directory tree and return the new directory",
    "Implement dedent(text): Remove any common leading whitespace from every line in text",
    "Implement gcd(a, b): Return the greatest common divisor",
    (
        "Implement parse_header(line): Split a header line into its key and a dictionary of its options, with quotes "
        "taken off and every name in lower case; an option without a value is kept with None, and a line without a "
        "key is an error that names the line"
    ),
    (
        "Implement walk(top, topdown=True, onerror=None): Yield a tuple of the directory path, the names of its "
        "directories and the names of its files, for every directory below the top, in an order in which the caller "
        "may edit the names of the directories in place to leave some of them out"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and an EAGLE-3 drafter whose context is as long as the target's."""

    name: str
    target: Path
    drafter: Path

    def prompts(self) -> list[list[int]]:
        """Return SUBJECTS as token ids, in the target's own chat template."""
        tokenizer = AutoTokenizer.from_pretrained(self.target)
        chats = [[{"role": "user", "content": subject}] for subject in SUBJECTS]
        return [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in chats]


def pairs() -> dict[str, Pair]:
    """Return the dense pair (Llama) and the MLA + MoE pair (DeepSeek-V3 shaped)."""
    found = (
        Pair(name="dense", target=FIXTURES / "mini_llama", drafter=FIXTURES / "dense_mini"),
        Pair(name="mla", target=FIXTURES / "mini_k25", drafter=FIXTURES / "scratch_k25_mini"),
    )
    return {pair.name: pair for pair in found}
