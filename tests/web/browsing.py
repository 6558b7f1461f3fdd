"""What tests of the explorer do in a browser: wait, open the Look page, read what it shows."""

SLOW = 60_000  # milliseconds that a busy machine may take


def until(page, expression):
    """Playwright's own waiting evaluates text inside the page, which the page's policy forbids."""
    for _ in range(SLOW // 50):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not in {SLOW} ms: {expression}")


def settle(page):
    page.wait_for_selector(".page > :not(.wait)")


def answers(page):
    """How many answers the Look page has shown."""
    return int(page.evaluate("document.querySelector('.page').dataset.answers || '0'"))


def here(page):
    """The address, once that of the Look page has followed: it does so a moment after the last change."""
    page.evaluate("new Promise((done) => setTimeout(done, 250))")
    return page.url


def open_look(page, address, query=""):
    page.goto(f"{address}#/look{query}")
    until(page, "document.querySelector('.page')?.dataset.answers > 0")


def after(page, act):
    """Do something, and wait until the Look page has shown a newer answer."""
    before = answers(page)
    act()
    until(page, f"document.querySelector('.page').dataset.answers > {before}")
    page.wait_for_timeout(100)
    until(page, "!document.querySelector('.page').dataset.busy")


def logits(page, panel):
    return page.locator(".model-panel").nth(panel).locator("[data-logit]").evaluate_all("all => all.map(e => e.title)")


def maps(page, panel):
    drawn = "p => [...p.querySelectorAll('.head-map canvas')].map(c => c.toDataURL())"
    return page.locator(".model-panel").nth(panel).evaluate(drawn)
