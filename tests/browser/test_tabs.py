"""Many tabs, one chat: all equal, whatever happens to the line, the page or the server in mid-answer."""


from playwright.sync_api import expect

from tests.browser.house import House, People, answered, messages, say

CONFIG = """
[models]
default = "demo/essay?words=120&rate=60"
"""


def test_nine_tabs_on_one_chat_show_the_same(open_page: People, server: House, chat_id: str) -> None:
    first = open_page(f"/c/{chat_id}")
    tabs = [first, *(open_page(f"/c/{chat_id}") for _ in range(8))]
    say(first, "What is a lease?")
    for tab in tabs:
        answered(tab)
    asked, answer = server.texts(chat_id)
    for tab in tabs:
        expect(messages(tab).nth(1)).to_contain_text(" ".join(answer.split()[-5:]))
    assert asked == "What is a lease?"
