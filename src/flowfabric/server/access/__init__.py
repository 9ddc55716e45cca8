"""Who calls: principals, and how a request proves that it is one.

principal     a caller with its scopes and namespaces
authenticate  the principal of a request, by its token
origins       hosts and origins that a request may have
"""
