"""Choosing between thoughts: two are proposed, each is rated, the better one goes on."""

import re

from llm4pcg.competition import chat_with_llm

WIDTH, DEPTH = 2, 2


def rating(text):
    found = re.search(r"rating: *(\d+)", text.lower())
    return int(found.group(1)) if found else 0


def best_thought(ctx, propose, rate):
    so_far = ""
    try:
        for _ in range(DEPTH):
            thoughts = chat_with_llm(ctx, [{"role": "user", "content": propose + so_far}], n=WIDTH)
            replies = [chat_with_llm(ctx, [{"role": "user", "content": rate + thought}])[0] for thought in thoughts]
            so_far = max(zip(map(rating, replies), thoughts, strict=True))[1]
    except (ValueError, TimeoutError) as error:
        print(error)
    return so_far
