"""The dashboard: what a person sees of FlowFabric in a browser.

app        `app(engine, principal=...)`: the ASGI application
table      what screens and acts are
routes     every screen and act
pages      one module per screen: read, shape, and name a template
visit      one request: who looks, at which namespace, at what time
site       what the requests of one dashboard share
access     sessions, and who looks
login      the login page
csrf       tokens of forms
acts       dialogs, and the changes that follow them
regions    parts of pages that are fetched again
pulse      what has changed, for everybody who looks
live       server-sent events
render     templates
assets     files that pages load
nav        the navigation
view       values as people read them
"""

from flowfabric.dashboard.app import Dashboard, app, mounting
from flowfabric.server.access.principal import Principal

__all__ = ["Dashboard", "Principal", "app", "mounting"]
